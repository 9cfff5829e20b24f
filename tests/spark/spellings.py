"""Spellings of numbers, and of zones of timestamps, that text may have. Contains no tests."""

from __future__ import annotations

from random import Random

__all__ = ["ZONES", "decimal", "script"]

DIGITS = ("٠١٢٣٤٥٦٧٨٩", "０１２３４５６７８９", "०१२३४५६७८९", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗")
"Digits of other scripts; the last ones are above the first 65,536 code points."
EXPONENTS = ("", "", "", "e0", "E5", "e-5", "e+3", "e39", "e-39", "E-100", "e400", "e-400", "e007", "e", "e+", "e1.5")
FAR = (
    "e-2147483648",
    "e2147483648",
    "e99999999999",
    "e-99999999999",
    "e-2147483647",
    "e00000000005",
    "e-0000000000005",
)
"Exponents at the edge of 32 bits and of ten digits, and beyond."
INSERTED = (",", ",,", "_", " ", "\t", "\u00a0", "d", "f", "L", "x", "'", ".", "-", "\u0660", "\u2212", "e", "٫", "٬")

WORDS = (
    "Z z UTC utc GMT UT GMT0 Etc/GMT+5 Etc/GMT-14 Etc/UTC UCT Zulu Universal Greenwich GB PRC ROK EST5EDT "
    "CST6CDT MST7MDT PST8PDT WET CET MET EET EST MST HST SystemV/AST4 SystemV/EST5EDT SystemV/PST8PDT "
    "SystemV/HST10 posix/Europe/Paris right/Europe/Paris posixrules localtime Factory Europe/Paris "
    "europe/paris Europe/Kyiv Europe/Kiev US/Pacific-New US/Pacific Asia/Calcutta America/Buenos_Aires "
    "America/Argentina/ComodRivadavia America/Ciudad_Juarez Pacific/Kanton Antarctica/Troll "
    "Africa/Casablanca Europe/Dublin NZ-CHAT W-SU GB-Eire Asia/Rangoon America/Nuuk Asia/Qostanay "
    "Etc/GMT0 Etc/GMT-0 GMT+0 GMT-0 GMT+00:00 UTC+0 UTC-00:00 UT+5 UTC+5 UTC+05 UTC+0530 UTC+05:30 "
    "UTC+5:30 UTC+05:3 UTC+053 UTC+05:30:15 UTC+053015 UTC+18 UTC+18:00 UTC+18:01 UTC+19 UTC+ UTC- UTC5 "
    "GMT+5 GMT+05:30 GMT5 GMT+12:34:56 GMT-3:00 Europe/Paris+1 +5 +05 +0530 +05:30 +5:30 +05:3 +5:3 +053 "
    "+530 +05:30:15 +5:30:15 +05:30:1 +053015 +18 +18:00 +18:00:00 +18:00:01 +1800 +180000 +19 -18:00 "
    "-18:01 -00:00 -00 -0 +00:60 +01:59 +01:60 +01:00:60 + - --5 ++5 +005 +0005 +5Z +05:30Z +05: +:30 "
    "+5.5 ACT AET AGT ART AST BET BST CAT CNT CST CTT EAT ECT IET IST JST MIT NET NST PLT PNT PRT PST SST "
    "VST EDT PDT CEST pst [Europe/Paris] +01:00[Europe/Paris] Europe//Paris /Europe/Paris Europe/Paris/ "
    "UTC+٥ +٠٥:٣٠ +０５ ZZ UTCZ GMTZ "
)
ZONES = [
    *WORDS.split(),
    *("UTC +5", "+ 5", "Eur ope/Paris", " Europe/Paris ", "Z ", "UTC+05:30 "),
]
"What Java and Spark accept as a zone, and what they do not."


def decimal(random: Random, *, far: bool) -> str:
    """A number, or nearly one; ``far`` for exponents at the edge of what Java has."""
    whole = "".join(random.choice("0123456789") for _ in range(random.choice((1, 2, 3, 6, 9, 20, 37, 38, 39, 80))))
    fraction = "".join(random.choice("0001234567899") for _ in range(random.choice((0, 1, 2, 3, 17, 18, 19, 38, 60))))
    exponent = random.choice(FAR) if far and random.random() < 0.2 else random.choice(EXPONENTS)
    zeros = "0" * random.choice((0, 0, 0, 1, 2, 10, 40))
    point = "." if fraction or random.random() < 0.1 else ""
    text = (
        random.choice(("", "", "-", "+"))
        + zeros
        + ("" if random.random() < 0.1 else whole)
        + point
        + fraction
        + exponent
    )
    if random.random() < 0.2:
        text = script(random, text)
    if random.random() < 0.15:
        place = random.randrange(len(text) + 1)
        text = text[:place] + random.choice(INSERTED) + text[place:]
    return text


def script(random: Random, text: str) -> str:
    """The text with some of its digits in another script."""
    digits = random.choice(DIGITS)
    return "".join(digits[int(char)] if char in "0123456789" and random.random() < 0.6 else char for char in text)
