"""Amounts of memory as people read them: always GiB."""

_MIB = 1024
_DIGITS = 2


def gib(mib: int) -> str:
    """MiB as GiB with at most two digits, such as `4 GiB` and `1.5 GiB`; never 0 for something."""
    amount = round(mib / _MIB, _DIGITS)
    if not amount and mib:
        amount = 0.01 if mib > 0 else -0.01
    text = f"{amount:.{_DIGITS}f}".rstrip("0").rstrip(".")
    return f"{text} GiB"
