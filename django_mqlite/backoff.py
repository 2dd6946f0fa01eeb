"""How long a failed message rests before its next delivery."""


def backoff_ms(delivery_count: int, *, base_ms: int, max_ms: int, chance: float) -> int:
    """Exponential with equal jitter: half of `base · 2^(n-1)` for certain, the rest by chance.

    `delivery_count` counts from 1, `chance` is in [0, 1). Never above `max_ms`. The exponent is
    clamped before it is used: 2**10_000 would be exact, slow and useless. Source of the idea:
    "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 (its "equal jitter").
    """
    exponent = min(max(delivery_count, 1) - 1, 62)
    ceiling = min(base_ms * 2**exponent, max_ms)
    return int(ceiling / 2 + ceiling / 2 * chance)
