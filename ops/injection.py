"""What makes a rank slower than others, on purpose: a factor, delays by step, an end by signal."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Delay", "parse_delay", "parse_duration", "parse_slow"]

_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_FORMS = "uniform:LOW:HIGH, round-robin:SECONDS or probability:P:SECONDS, e.g. uniform:0:50ms"


@dataclass(frozen=True)
class Delay:
    """By how much each step of a rank is delayed.

    Attributes:
        kind: "uniform": each step, between low and high; "round-robin": high, in the steps whose
            number is the rank modulo the world size; "probability": high, with that probability.
        low: seconds.
        high: seconds.
        probability: between 0 and 1.
    """

    kind: str
    low: float = 0.0
    high: float = 0.0
    probability: float = 0.0


def parse_duration(text: str) -> float:
    """Returns seconds for text such as "50ms", "2s" or "0.5".

    Raises:
        ValueError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|ms|us|)", text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a duration; write it like 50ms, 2s or 0.5 (seconds).")
    return float(match[1]) * _UNITS[match[2]]


def parse_delay(text: str) -> Delay:
    """Returns the delay for text such as "uniform:0:50ms" or "probability:0.1:6s".

    In `uniform:0:50ms` a bound without a unit has that of the other.

    Raises:
        ValueError: it is none; the message lists the forms.
    """
    kind, *parts = text.strip().split(":")
    try:
        if kind == "uniform" and len(parts) == 2:
            low, high = parts
            unit = re.sub(r"[\d.]", "", high)
            low_seconds = parse_duration(low if re.search("[a-z]", low) else low + unit)
            high_seconds = parse_duration(high)
            if low_seconds > high_seconds:
                raise ValueError(f"the lower bound {low} is above the higher one, {high}")
            return Delay(kind, low=low_seconds, high=high_seconds)
        if kind == "round-robin" and len(parts) == 1:
            return Delay(kind, high=parse_duration(parts[0]))
        if kind == "probability" and len(parts) == 2:
            probability = float(parts[0])
            if not 0 <= probability <= 1:
                raise ValueError(f"a probability is between 0 and 1, found {parts[0]}")
            return Delay(kind, high=parse_duration(parts[1]), probability=probability)
    except ValueError as error:
        raise ValueError(f"the delay {text!r} is wrong: {error}. Write {_FORMS}.") from error
    raise ValueError(f"{text!r} is not a delay. Write {_FORMS}.")


def parse_slow(text: str) -> float:
    """Returns the factor by which computing takes longer.

    Raises:
        ValueError: it is no number, or under 1.
    """
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor < 1e6:
        raise ValueError(f"a factor to slow computing by is a number from 1 on, found {text!r}.")
    return factor
