"""Numbers and names as readers see them, and values as JSON can say them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from zlib import crc32

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
RANGE_BELOW = 6  # values; the interval of fewer is their whole range and covers less than 95 %
MINUS = "\N{MINUS SIGN}"
NONE = "\N{EM DASH}"


def _scientific(mantissa: str, exponent: str | int) -> str:
    """A number in scientific notation: 1.23×10⁻⁸."""
    return f"{mantissa}×10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def number(value: Any, digits: int = 3) -> str:
    """A number with `digits` significant digits: 0.0123, 12,300, 1.23×10⁻⁸; a dash for none, or ∞."""
    if value is None:
        return NONE
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    in_full = f"{value:,.{max(0, digits - 1 - exponent)}f}"
    text = in_full if -4 <= exponent < 7 else _scientific(*f"{value:.{digits - 1}e}".split("e"))
    return text.replace("-", MINUS)


def signed(value: Any) -> str:
    """A difference with its sign: +0.0123."""
    return f"{'+' if value is not None and value > 0 else ''}{number(value)}"


def count(value: Any) -> str:
    """A number that counts something: whole ones without decimals."""
    if value is None or not math.isfinite(value) or not float(value).is_integer() or abs(value) >= 1e7:
        return number(value)
    return f"{value:,.0f}".replace("-", MINUS)


def ratio(value: Any) -> str:
    """A ratio with three digits; within a hundredth of 1, where those say nothing, four decimals: 1.0059."""
    return f"{value:.4f}" if value is not None and abs(value - 1) < 0.01 else number(value)


def ratio_writer(together: Iterable[float | None]) -> Callable[[float | None], str]:
    """What writes ratios that stand together, as an estimate and the ends of its interval do.

    Three digits each; where one is within a hundredth of 1, three decimals each, or four where three would
    call one of them 1.000 that is not, or all are so near.
    """
    known = [value for value in together if value is not None and math.isfinite(value) and value != 0]
    near = [abs(value - 1) < 0.01 for value in known]
    if not any(near):
        return ratio
    fine = all(near) or any(value != 1 and f"{value:.3f}" == "1.000" for value in known)

    def write(value: float | None) -> str:
        # what such decimals cannot tell from 0, or are too many for
        if value is None or not 0.1 <= abs(value) < 999.5:
            return number(value)
        return f"{value:.{4 if fine else 3}f}".replace("-", MINUS)

    return write


def ratios(together: Sequence[float | None]) -> list[str]:
    """Ratios that stand together, as `ratio_writer` has them."""
    return list(map(ratio_writer(together), together))


def counts(together: Sequence[float | None]) -> list[str]:
    """Numbers that count something and stand together: all with a decimal, or all without.

    They have one where a number is not whole and all are below 100.
    """
    known = [value for value in together if value is not None and math.isfinite(value)]
    if all(float(value).is_integer() for value in known):
        return list(map(count, together))
    places = 1 if all(abs(value) < 100 for value in known) else 0
    return [
        f"{value:,.{places}f}".replace("-", MINUS) if value in known and abs(value) < 1e7 else number(value)
        for value in together
    ]


def plain(value: Any) -> str:
    """A number as it was set, without trailing zeros: 0.2, 1, 3823, 0.001, 10⁻⁸."""
    value = float(value)
    if value == 0 or 1e-4 <= abs(value) < 1e7 or not math.isfinite(value):
        return f"{value:.7g}".replace("-", MINUS)
    mantissa, _, power = f"{value:.6e}".partition("e")
    return _scientific(mantissa.rstrip("0").rstrip("."), power).removeprefix("1×").replace("-", MINUS)


def rate(value: Any) -> str:
    """A learning rate to three digits, without trailing zeros."""
    return NONE if value is None else plain(float(f"{float(value):.3g}"))


def moment(started: str | None) -> str:
    """An ISO 8601 moment to the minute, without its zone."""
    return NONE if started is None else started[:16].replace("T", " ")


def power_of_ten(value: float, _: Any = None) -> str:
    """A tick of a logarithmic axis: 0.1, 1, 10, else 10⁻³ or 2×10⁻³."""
    if value <= 0:
        return ""
    exponent = math.floor(math.log10(value) + 1e-9)
    if -2 <= exponent <= 2:
        return f"{value:.6g}"
    return _scientific(f"{value / 10**exponent:.6g}", exponent).removeprefix("1×")


def interval(low: Any, high: Any) -> str:
    """An interval in brackets, or a dash where there is none."""
    return NONE if low is None or high is None else f"[{number(low)}, {number(high)}]"


def change_text(ratio: float) -> str:
    """A ratio as a change: +12 %, −3 %, ×2.3 from a doubling on."""
    if ratio >= 2:
        return f"×{number(ratio, 2)}"
    change = round(100 * (ratio - 1))
    return f"{'+' if change > 0 else MINUS if change < 0 else '±'}{abs(change)} %"


def percent(share: Any, digits: int = 0) -> str:
    """A share as a percentage."""
    return NONE if share is None else f"{100 * float(share):.{digits}f} %"


def capital(text: str) -> str:
    """Text with a capital first letter; the others stay as they are."""
    return text[:1].upper() + text[1:]


def p_value(value: float) -> str:
    """A p-value; the tiny ones as a bound."""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def seconds(value: Any) -> str:
    """A duration with its unit: 12.3 ms, 4.56 s, 3 min 20 s, 12 h 05 min."""
    if value is None:
        return NONE
    value = float(value)
    if not math.isfinite(value):
        return number(value)
    if abs(value) >= 7200:
        hours, minutes = divmod(round(value / 60), 60)
        return f"{hours} h {minutes:02d} min"
    if abs(value) >= 120:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest:02d} s"
    if value == 0:
        return "0 s"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if float(f"{abs(value) * factor:.3g}") >= 1 or unit == "µs":  # as it will be shown
            break
    return f"{number(value * factor)} {unit}"


def size(total: Any) -> str:
    """Bytes with a binary unit."""
    if total is None:
        return NONE
    value = float(total)
    for unit in ("B", "KiB", "MiB"):
        if round(value) < 1024:
            return f"{value:.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{number(value)} GiB"


def metric_name(name: str, which: str = "") -> str:
    """`train_loss` as words: training loss; with which of its values: final training loss."""
    split, _, rest = name.partition("_")
    return f"{which} {words(f'training_{rest}' if split == 'train' and rest else name)}".lstrip()


# Options whose name alone would mislead: weight decay is decoupled from the gradient in all of AdamW.
OPTIONS_IN_WORDS = {"decoupled_weight_decay": "weight decay decoupled from the learning rate"}


def words(name: str) -> str:
    """A name as words: learning rate."""
    return OPTIONS_IN_WORDS.get(name, name.replace("_", " "))


def at_step(step: int | None) -> str:
    """The step of an event, after the event: at 40."""
    return "" if step is None else f" at {step}"


def added(value: int | None) -> str:
    """A number that is added to another one: + 60; nothing where it is 0 or not known."""
    return f"+ {count(value)}" if value else ""


def listed(texts: Sequence[str], most: int | None = None, last: str = "and") -> str:
    """Texts as a list in a sentence, the first `most` by name: a, b, c and 2 more."""
    shown = list(texts[:most])
    if len(texts) > len(shown):
        shown.append(f"{len(texts) - len(shown)} more")
    return f"{', '.join(shown[:-1])} {last} {shown[-1]}" if len(shown) > 1 else "".join(shown)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of texts as lines, the columns two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def counted(total: int, noun: str) -> str:
    """How many there are: 1 epoch, 1,200 steps.

    Args:
        noun: in the plural.
    """
    one = f"{noun.removesuffix('ies')}y" if noun.endswith("ies") else noun.removesuffix("s")
    return f"{total:,} {one if total == 1 else noun}"


def in_dimensions(value: Any) -> float | None:
    """How often the dimension d a size is, as studies write it (`0.5 d`); None for a number."""
    factor, _, unit = str(value).partition(" ")
    return float(factor) if unit == "d" else None


def slug(text: str) -> str:
    """A text as part of a file name or a link: safe letters, and a checksum where others were dropped."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    return safe if safe and safe == text else f"{safe or 'x'}-{crc32(text.encode()):08x}"


WORDS = ("Infinity", "-Infinity", "NaN")  # which float() reads, in Python and pandas


def word_of(value: float) -> str:
    """The word for a number that is infinite or not a number."""
    return WORDS[2 if math.isnan(value) else int(value < 0)]


def json_value(value: Any, otherwise: Callable[[float], str | None] = lambda _: None) -> Any:
    """A value as JSON can say it: inside it too, null or what is given for what is infinite or no number."""
    if isinstance(value, dict):
        return {key: json_value(each, otherwise) for key, each in value.items()}
    if isinstance(value, list):
        return [json_value(each, otherwise) for each in value]
    return otherwise(value) if isinstance(value, float) and not math.isfinite(value) else value
