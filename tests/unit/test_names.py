"""What a queue may be called."""

import pytest

from django_mqlite.names import checked_name


@pytest.mark.parametrize("name", ["a", "0", "emails", "order-events", "a.b_c-D9", "x" * 128])
def test_letters_digits_dot_dash_and_underscore_are_a_name(name):
    assert checked_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a/b",
        "-a",
        ".a",
        "_a",
        "..",
        "a\n",
        "\na",
        "a\0",
        "é",
        "٣",
        "x" * 129,
        "a%s",
        "a'b",
        "*",
        None,
        5,
        b"a",
    ],
)
def test_anything_else_is_a_value_error_with_the_rule(name):
    with pytest.raises(ValueError, match=r"Invalid queue name .*: use 1 to 128 letters"):
        checked_name(name)
