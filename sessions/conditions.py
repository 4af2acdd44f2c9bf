"""Conditions of decision tables: what is wanted of a situation, field by field."""


def fits(when: tuple[object, ...], have: tuple[object, ...]) -> bool:
    """Return whether every field of a situation is what the condition wants; None stands for anything."""
    return all(want is None or want == known for want, known in zip(when, have, strict=True))
