"""Short acknowledgements: what a listener says to keep a speaker going (F15 row 13, WIRE 6.4)."""

import re

_SPOKEN = (
    "yes, yeah, yep, yup, ok, okay, right, sure, good, great, fine, alright, exactly, true, understood, continue",
    "aha, ah, ahh, oh, ooh, hm, hmm, hmhm, mm, mmm, mhm, mhmm, uh huh, uhhuh, uhuh, mm hm, mm hmm, mm mm, huh",
    "go on, go ahead, keep going, please continue, please go on, i see, i understand, got it, of course, all right",
    "cool, nice, indeed, absolutely, makes sense, sounds good, fair enough",
    "ja, jaja, jo, genau, gut, klar, stimmt, richtig, schön, weiter, mach weiter, alles klar, ach so, achso",
    "verstehe, verstanden, natürlich, soso",
    "oui, ouais, d'accord, bien, exact, voilà, continue, continuez, je vois, vas-y, bien sûr, mmh, ah bon, entendu",
    "sí, si, vale, claro, bueno, bien, exacto, sigue, continúa, adelante, entiendo, de acuerdo, ajá, ya, ya veo",
    "sim, certo, claro, bom, entendi, isso, pois é, está bem, pode continuar, aham, uhum, tá, tá bom, sei",
    "sì, va bene, certo, giusto, capito, esatto, continua, d'accordo, vai avanti, mh, già, perfetto",
    "oké, prima, klopt, precies, juist, ga door, inderdaad, snap ik",
    "да, ага, угу, хорошо, ладно, понятно, ясно, верно, точно, так, продолжай, продолжайте",
    "tak, dobrze, jasne, racja, rozumiem, no tak, mów dalej",
    "evet, tamam, peki, doğru, anladım, devam, devam et, hı hı, hıhı",
    "نعم, أجل, حسنا, تمام, صحيح, طيب, أكمل, تابع, ايوه",
    "हाँ, हां, जी, ठीक, ठीक है, अच्छा, सही, जी हाँ, हम्म",
    "嗯, 嗯嗯, 嗯哼, 哦, 噢, 对, 對, 对对, 对对对, 对啊, 好, 好的, 好吧, 好啊, 行, 是, 是的, 是啊, 没错, 明白",
    "明白了, 知道了, 可以, 继续, 繼續, 请继续",
    "はい, はいはい, うん, うんうん, ええ, へえ, そう, そうですね, なるほど, わかった, わかりました",
    "続けて, どうぞ",
    "네, 네네, 예, 응, 음, 그래, 맞아, 맞아요, 그렇군요, 좋아, 좋아요, 알겠어요, 계속, 계속하세요",
)

MOST_PHRASES = 4
"""So many in a row still only say that the speaker may go on ("yeah, yeah, okay")."""

_BETWEEN = re.compile(r"[\W_]+")


def _bare(text: str) -> str:
    """Return the letters and digits of a text in small letters, what stands between them as one space."""
    return _BETWEEN.sub(" ", text.casefold()).strip()


PHRASES = frozenset(_bare(phrase) for line in _SPOKEN for phrase in line.split(","))
_LONGEST = max(len(phrase.split()) for phrase in PHRASES)


def acknowledges(text: str | None) -> bool:
    """Return whether these words, as a whole, only say that the speaker may go on."""
    words = _bare(text or "").split()
    return bool(words) and _are_phrases(words, MOST_PHRASES)


def _are_phrases(words: list[str], most: int) -> bool:
    """Return whether words are a few phrases in a row."""
    if not words or not most:
        return not words
    lengths = range(1, min(_LONGEST, len(words)) + 1)
    return any(" ".join(words[:n]) in PHRASES and _are_phrases(words[n:], most - 1) for n in lengths)
