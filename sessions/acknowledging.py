"""Short acknowledgements: what a listener says to keep a speaker going (F15 row 13, WIRE 6.4)."""

import re

_SPOKEN = (
    "yes, yeah, yep, yup, ok, okay, right, sure, good, great, fine, alright, exactly, true, understood, continue",
    "aha, ah, oh, hm, hmm, mm, mmm, mhm, uh huh, mm hm, mm hmm, go on, go ahead, keep going, please continue",
    "please go on, i see, got it, of course, all right",
    "ja, jaja, genau, gut, klar, stimmt, richtig, schön, weiter, mach weiter, alles klar, ach so, verstehe",
    "oui, ouais, d'accord, bien, exact, voilà, continue, continuez, je vois, vas-y, bien sûr",
    "sí, si, vale, claro, bueno, bien, exacto, sigue, continúa, adelante, entiendo, de acuerdo",
    "sim, certo, claro, bom, entendi, isso, pois é, está bem, pode continuar",
    "sì, va bene, certo, giusto, capito, esatto, continua, d'accordo, vai avanti",
    "oké, prima, klopt, precies, juist, ga door",
    "да, ага, угу, хорошо, ладно, понятно, ясно, верно, точно, так, продолжай, продолжайте",
    "tak, dobrze, jasne, racja, rozumiem, no tak, mów dalej",
    "evet, tamam, peki, doğru, anladım, devam, devam et",
    "نعم, أجل, حسنا, تمام, صحيح, طيب, أكمل, تابع",
    "हाँ, हां, जी, ठीक, ठीक है, अच्छा, सही, जी हाँ",
    "嗯, 嗯嗯, 对, 對, 对对, 好, 好的, 好吧, 行, 是, 是的, 没错, 明白, 明白了, 知道了, 可以, 继续, 繼續, 请继续",
    "はい, うん, ええ, そう, そうですね, なるほど, わかった, わかりました, 続けて, どうぞ",
    "네, 예, 응, 그래, 맞아, 맞아요, 좋아, 좋아요, 알겠어요, 계속, 계속하세요",
)

_BETWEEN = re.compile(r"[\W_]+")


def _bare(text: str) -> str:
    """Return the letters and digits of a text in small letters, what stands between them as one space."""
    return _BETWEEN.sub(" ", text.casefold()).strip()


PHRASES = frozenset(_bare(phrase) for line in _SPOKEN for phrase in line.split(","))


def acknowledges(text: str | None) -> bool:
    """Return whether these words, as a whole, only say that the speaker may go on."""
    return bool(text) and _bare(text or "") in PHRASES
