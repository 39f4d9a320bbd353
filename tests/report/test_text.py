import unicodedata

import pytest
from hypothesis import given, strategies as st

from naming import case
from report.payloads import PAYLOADS
from stiffnet.report.text import clean, number, percent, plot_text, with_error


@given(st.text(st.characters(), max_size=60))
def test_cleaned_text_holds_nothing_that_acts(text):
    shown = clean(text)
    categories = {unicodedata.category(c) for c in shown if c not in "\u200c\u200d"}
    assert not categories & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    shown.encode()


@given(st.text(st.characters(), max_size=60))
def test_cleaning_twice_changes_nothing(text):
    assert clean(clean(text)) == clean(text)


@given(st.text(max_size=300), st.integers(3, 50))
def test_cleaned_text_is_as_short_as_asked(text, longest):
    assert len(clean(text, longest=longest)) <= longest


def test_plot_text_has_no_markup():
    for payload in PAYLOADS:
        with case(payload):
            assert not set(plot_text(payload)) & set("<>$")


@pytest.mark.parametrize("word", ["layer1.0", "naïve café", "名前", "नाम", "a b-c_d#1"])
def test_ordinary_words_stay(word):
    assert clean(word) == plot_text(word) == word


@given(st.floats(1e-4, 1e8))
def test_a_number_is_right_to_its_digits(value):
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=6e-3)


@given(st.floats(0, 1))
def test_a_share_is_zero_or_all_only_if_it_is(share):
    assert (percent(share) == "0 %") == (share == 0)
    assert (percent(share) == "100 %") <= (share == 1)


def test_an_error_sets_the_decimals_of_its_value():
    assert with_error(-1.23456, 0.00678) == "−1.2346 ± 0.0068"
    assert with_error(float("nan"), 1.0) == "–"
