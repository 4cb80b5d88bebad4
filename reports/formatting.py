"""Formatting of numbers and names for readers, and conversion of values for JSON.

The functions whose names do not begin with an underscore are filters of the templates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from zlib import crc32

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# With fewer values than this, the interval of a median is the range of all values. It covers less than 95 %.
RANGE_BELOW = 6
MINUS = "\N{MINUS SIGN}"
NONE = "\N{EM DASH}"


def _scientific(mantissa: str, exponent: str | int) -> str:
    """Format a number in scientific notation: 1.23×10⁻⁸ for the mantissa "1.23" and the exponent -8."""
    return f"{mantissa}×10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def number(value: Any, digits: int = 3) -> str:
    """Format a number with `digits` significant digits: 0.0123, 12,300, 1.23×10⁻⁸, ∞; a dash for None."""
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
    """Format a difference with three digits and its sign: +0.0123 or −0.0123; a dash for None."""
    return f"{'+' if value is not None and value > 0 else ''}{number(value)}"


def count(value: Any) -> str:
    """Format a count, such as a median number of steps.

    A whole number below ten million is written in full, and any other number with three digits.
    """
    if value is None or not math.isfinite(value) or not float(value).is_integer() or abs(value) >= 1e7:
        return number(value)
    return f"{value:,.0f}".replace("-", MINUS)


def ratio(value: Any) -> str:
    """Format a ratio with three digits; a ratio within 0.01 of 1 gets four decimals, such as 1.0059."""
    return f"{value:.4f}" if value is not None and abs(value - 1) < 0.01 else number(value)


def ratio_writer(together: Iterable[float | None]) -> Callable[[float | None], str]:
    """Return a function that formats ratios which are shown together, such as an estimate and its interval.

    The ratios have three digits each. If at least one ratio is within 0.01 of 1, all ratios have three
    decimals. They have four decimals if all ratios are within 0.01 of 1, or if three decimals would show a
    ratio that is not exactly 1 as 1.000.

    Args:
        together: the ratios that are shown together; None stands for an absent ratio.
    """
    finite = [value for value in together if value is not None and math.isfinite(value) and value != 0]
    near = [abs(value - 1) < 0.01 for value in finite]
    if not any(near):
        return ratio
    fine = all(near) or any(value != 1 and f"{value:.3f}" == "1.000" for value in finite)

    def write(value: float | None) -> str:
        # Small and large ratios keep three digits, since a fixed number of decimals does not suit them.
        if value is None or not 0.1 <= abs(value) < 999.5:
            return number(value)
        return f"{value:.{4 if fine else 3}f}".replace("-", MINUS)

    return write


def ratios(together: Sequence[float | None]) -> list[str]:
    """Format ratios that are shown together, with more decimals if a ratio is near 1 (`ratio_writer`)."""
    return list(map(ratio_writer(together), together))


def counts(together: Sequence[float | None]) -> list[str]:
    """Format counts that are shown together, with the same number of decimals.

    The counts have one decimal if at least one count is not a whole number and all counts are below 100.
    Otherwise they have no decimals.
    """
    valid = [value for value in together if value is not None and math.isfinite(value)]
    if all(float(value).is_integer() for value in valid):
        return list(map(count, together))
    places = 1 if all(abs(value) < 100 for value in valid) else 0
    return [
        f"{value:,.{places}f}".replace("-", MINUS) if value in valid and abs(value) < 1e7 else number(value)
        for value in together
    ]


def plain(value: Any) -> str:
    """Format a number without trailing zeros, as a user would type it: 0.2, 1, 3823, 0.001, 10⁻⁸."""
    value = float(value)
    if value == 0 or 1e-4 <= abs(value) < 1e7 or not math.isfinite(value):
        return f"{value:.7g}".replace("-", MINUS)
    mantissa, _, power = f"{value:.6e}".partition("e")
    return _scientific(mantissa.rstrip("0").rstrip("."), power).removeprefix("1×").replace("-", MINUS)


def rate(value: Any) -> str:
    """Format a learning rate with at most three digits, without trailing zeros; a dash for None."""
    return NONE if value is None else plain(float(f"{float(value):.3g}"))


def moment(started: str | None) -> str:
    """Format a time in ISO 8601 to the minute and without its time zone; a dash for None."""
    return NONE if started is None else started[:16].replace("T", " ")


def power_of_ten(value: float, _: Any = None) -> str:
    """Format a tick of a logarithmic axis: from 0.01 to 999 in full, other values as 10⁻³ or 2×10⁴.

    Args:
        value: position of the tick; for a value that is not positive, the text is empty.
        _: index of the tick, which Matplotlib passes to a formatter and which is ignored.
    """
    if value <= 0:
        return ""
    exponent = math.floor(math.log10(value) + 1e-9)
    if -2 <= exponent <= 2:
        return f"{value:.6g}"
    return _scientific(f"{value / 10**exponent:.6g}", exponent).removeprefix("1×")


def interval(low: Any, high: Any) -> str:
    """Format an interval in brackets; a dash if an end is None."""
    return NONE if low is None or high is None else f"[{number(low)}, {number(high)}]"


def change_text(ratio: float) -> str:
    """Format a ratio as a change, such as +12 % or −3 %. A ratio of at least 2 is a factor, such as ×2.3."""
    if ratio >= 2:
        return f"×{number(ratio, 2)}"
    change = round(100 * (ratio - 1))
    return f"{'+' if change > 0 else MINUS if change < 0 else '±'}{abs(change)} %"


def percent(share: Any, digits: int = 0) -> str:
    """Format a share, from 0 to 1, as a percentage with `digits` decimals: 45 %; a dash for None."""
    return NONE if share is None else f"{100 * float(share):.{digits}f} %"


def capital(text: str) -> str:
    """Return the text with its first letter as a capital, and the rest unchanged."""
    return text[:1].upper() + text[1:]


def p_value(value: float) -> str:
    """Format a p-value; p-values below 0.0001 are shown as "< 0.0001"."""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def seconds(value: Any) -> str:
    """Format a duration with its unit: 12.3 ms, 4.56 s, 3 min 20 s, 12 h 05 min."""
    if value is None:
        return NONE
    value = float(value)
    if not math.isfinite(value):
        return number(value)
    if abs(value) >= 7200:
        hours, minutes = divmod(round(value / 60), 60)
        return f"{hours} h {minutes:02d} min"
    if abs(value) >= 120:
        minutes, remainder = divmod(round(value), 60)
        return f"{minutes} min {remainder:02d} s"
    if value == 0:
        return "0 s"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        # Compare the rounded value, so that 0.9999 s is shown as 1.00 s and not as 1,000 ms.
        if float(f"{abs(value) * factor:.3g}") >= 1 or unit == "µs":
            break
    return f"{number(value * factor)} {unit}"


def size(total: Any) -> str:
    """Format a number of bytes with a binary unit: 12.3 MiB; a dash for None."""
    if total is None:
        return NONE
    value = float(total)
    for unit in ("B", "KiB", "MiB"):
        if round(value) < 1024:
            return f"{value:.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{number(value)} GiB"


def metric_name(name: str, which: str = "") -> str:
    """Return a metric's name in words, e.g. "training loss" for `train_loss`.

    Args:
        which: the kind of value, such as `final` or `steps_to_target`, which is put before the name: "final
            training loss" or "steps to target training loss".
    """
    split, _, quantity = name.partition("_")
    in_full = f"training_{quantity}" if split == "train" and quantity else name
    return f"{words(which)} {words(in_full)}".lstrip()


# Texts for options whose names would mislead readers.
# AdamW decouples weight decay from the gradient, whatever the option `decoupled_weight_decay` is.
# The option `decoupled_weight_decay` decides whether weight decay is multiplied by the learning rate.
OPTIONS_IN_WORDS = {"decoupled_weight_decay": "weight decay decoupled from the learning rate"}


def words(name: str) -> str:
    """Return the name of an option or a quantity in words, e.g. "learning rate" for `learning_rate`."""
    return OPTIONS_IN_WORDS.get(name, name.replace("_", " "))


def at_step(step: int | None) -> str:
    """Return the step of an event as words that follow the event, e.g. " at 40"; empty if `step` is None."""
    return "" if step is None else f" at {step}"


def added(value: int | None) -> str:
    """Format a count that is added to another count, e.g. "+ 60"; empty if `value` is 0 or None."""
    return f"+ {count(value)}" if value else ""


def listed(texts: Sequence[str], most: int | None = None, last: str = "and") -> str:
    """Join texts to a list for a sentence: "a, b, c and 2 more".

    Args:
        most: number of texts to name; further texts are only counted. None to name all texts.
        last: word before the last text.
    """
    named = list(texts[:most])
    if len(texts) > len(named):
        named.append(f"{len(texts) - len(named)} more")
    return f"{', '.join(named[:-1])} {last} {named[-1]}" if len(named) > 1 else "".join(named)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Format rows of texts as a table, with a line for each row and two spaces between columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def counted(total: int, noun: str) -> str:
    """Format a number with a noun, in the singular for the number 1: 1 epoch, 1,200 steps.

    Args:
        noun: the noun in the plural, such as "epochs".
    """
    singular = f"{noun.removesuffix('ies')}y" if noun.endswith("ies") else noun.removesuffix("s")
    return f"{total:,} {singular if total == 1 else noun}"


def in_dimensions(value: Any) -> float | None:
    """Return the number before "d" in a size that is given as a multiple of the dimension d: 0.5 for "0.5 d".

    The result is None if the size is given in another way, such as a plain number.
    """
    factor, _, unit = str(value).partition(" ")
    return float(factor) if unit == "d" else None


def slug(text: str) -> str:
    """Make a text usable in a file name or a link.

    A text that has only safe characters is returned unchanged. In any other text, unsafe characters become
    hyphens, and a checksum of the text is appended so that different texts stay different.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    return safe if safe and safe == text else f"{safe or 'x'}-{crc32(text.encode()):08x}"


# Words for infinite numbers and NaN. Python's `float()` and pandas can read these words as numbers.
WORDS = ("Infinity", "-Infinity", "NaN")


def word_of(value: float) -> str:
    """Return the word for a number that is infinite or NaN."""
    return WORDS[2 if math.isnan(value) else int(value < 0)]


def json_value(value: Any, otherwise: Callable[[float], str | None] = lambda _: None) -> Any:
    """Replace numbers that JSON cannot express (infinite numbers and NaN), also in dictionaries and lists.

    Args:
        otherwise: function that takes such a number and returns its replacement. The default returns None,
            which JSON writes as null.
    """
    if isinstance(value, dict):
        return {key: json_value(item, otherwise) for key, item in value.items()}
    if isinstance(value, list):
        return [json_value(item, otherwise) for item in value]
    return otherwise(value) if isinstance(value, float) and not math.isfinite(value) else value


def cell(text: str) -> str:
    """Return a name with Markdown's special characters escaped, for a cell of a table."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|&" else letter for letter in text)
