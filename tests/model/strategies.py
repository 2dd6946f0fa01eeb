"""The values that the model test draws: few, so that they coincide."""

from hypothesis import strategies as st

from tests.model.values import New, Options

LENGTHS = (1, 1_000, 5_000, 5_000, 30_000, 30_000, 1_800_000, 86_400_000)
"""Milliseconds: a moment, leases, a receipt's life, a day."""

MODES = {"loose": "standard", "groups": "group_fifo", "strict": "strict_fifo"}
TOPICS = {
    "news": {"news-all": "", "news-red": 'subject == "red"'},
    "odd": {"odd-broken": 'properties["colour"] == "red"'},
}
SUBSCRIPTIONS = [name for subscriptions in TOPICS.values() for name in subscriptions]

queues = st.sampled_from([*MODES, *MODES, *SUBSCRIPTIONS[:2]])
any_queue = st.sampled_from([*MODES, *SUBSCRIPTIONS[:2]] * 2 + ["nowhere"])
places = st.integers(0, 9)
some_places = st.lists(places, min_size=1, max_size=4)
lengths = st.sampled_from(LENGTHS)
limits = st.integers(1, 4)
locks = st.sampled_from([None, None, 1_000, 60_000])
few = st.sampled_from([None, 1, 2])
ages = st.sampled_from([None, None, None, 1_000, 5_000, 60_000, 0])

bodies = st.sampled_from([b"", b"a", b"bb"])
news = st.builds(
    New,
    body=bodies,
    group=st.sampled_from([None, "a", "a", "b"]),
    priority=st.sampled_from([0] * 8 + [5, -1]),
    delay=st.sampled_from([None, None, None, 0, 1_000, 20_000]),
    ttl=st.sampled_from([None, None, None, None, None, None, 10_000, 90_000, 90_000, 0]),
    bound=st.sampled_from([None, None, 1, 3]),
    message_id=st.sampled_from([None, None, "m1", "m2"]),
    subject=st.sampled_from([None, "red"]),
    unique=st.sampled_from([None, None, None, "u", "v"]),
)

in_flights = st.sampled_from([0, 0, 0, 1, 2])
rates = st.sampled_from([None, None, None, (3, 7_000), (1, 20_000)])

options = st.builds(
    Options,
    lock_duration=st.sampled_from([30_000, 5_000]),
    max_delivery_count=st.sampled_from([2, 1, 3]),
    backoff_base=st.sampled_from([0, 0, 8_000]),
    backoff_max=st.sampled_from([3_600_000, 12_000]),
    default_ttl=st.sampled_from([0, 0, 0, 20_000]),
    dead_letter_on_expire=st.sampled_from([True, False]),
    dedup_window=st.sampled_from([0, 0, 45_000]),
    retain_completed=st.sampled_from([0, 0, 40_000]),
    dlq_max_age=st.sampled_from([0, 0, 100_000]),
    dlq_max_count=st.sampled_from([0, 0, 1, 2]),
    dlq_max_bytes=st.sampled_from([0, 0, 2, 3]),
    max_in_flight=in_flights,
    rate=rates,
)

requests = st.one_of(
    st.just(("complete",)),
    st.tuples(st.just("abandon"), st.sampled_from([None, 0, 0, 5_000])),
    st.tuples(st.just("snooze"), st.sampled_from([5_000, 1_000])),
    st.tuples(st.just("reject"), st.sampled_from(["R", "S"]), st.sampled_from(["", "why"])),
    st.just(("defer",)),
)

attempts = st.sampled_from([None, None, "x", "y"])
parts = st.sampled_from(["claimed_token", "queue", "pk"])
selections = st.tuples(
    few, ages, st.sampled_from([None, None, 2]), st.sampled_from([False, False, False, True])
)
"""Limit, age, a rate or whether everything is meant, and whether the clock is set back before."""
earlies = st.sampled_from([0, 0, 1])
"""Milliseconds before the moment at which something ends."""
moments = st.sampled_from(["at once", "lease over", "claimed again", "forgotten"])
