"""Modules of the page that can be tested by themselves, in the browser."""

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(browser, address):
    """A page whose modules are called."""
    page = browser.new_page()
    page.goto(address)
    return page


@pytest.fixture
def call(page):
    """Calls a function of a module with JSON and gives its result."""

    def result(module, function, *arguments):
        return page.evaluate(
            "async ([module, name, given]) => (await import(`./${module}.js`))[name](...given)",
            [module, function, list(arguments)],
        )

    return result


def test_a_state_survives_the_address(call):
    state = {
        "run": "a b&c=d",
        "compare": "é",
        "text": "#?& 漢字",
        "ended": True,
        "features": "N;PL",
        "policy": "beam",
        "bias": -1.5,
        "margin": 0,
        "prefix": ["a", " ", "&"],
        "weights": [1, 0.25, 0, 2],
        "question": "who?",
        "sentences": ["one", "", "two"],
    }
    assert call("link", "fromHash", call("link", "toHash", state)) == state


def test_nonsense_in_an_address_is_ignored(call):
    state = call("link", "fromHash", "#bias=x&margin=-1&weights=1&weights=NaN&policy=odd&ended=perhaps")
    assert (state["bias"], state["margin"], state["weights"]) == (0, None, [])
    assert (state["policy"], state["ended"]) == ("beam", False)


PARTS = [
    {"text": "night", "parts": {"direct": -1.2, "channel": -2, "language_model": -10, "length": 6}},
    {"text": "nite", "parts": {"direct": -2, "channel": -1.5, "language_model": -13, "length": 5}},
]


def test_candidates_are_ranked_by_the_weighted_parts(call):
    own = {"direct": 1, "channel": 0.3, "language_model": 0.5, "length": 0.4}
    channel = {"direct": 0, "channel": 1, "language_model": 0, "length": 0}
    assert [each["text"] for each in call("ranking", "rank", PARTS, own)] == ["night", "nite"]
    assert [each["text"] for each in call("ranking", "rank", PARTS, channel)] == ["nite", "night"]


def test_the_verdict_names_the_part_that_decides_and_the_one_against(call):
    weights = {"direct": 1, "channel": 0.3, "language_model": 0.5, "length": 0.4}
    sentence = "night wins by 2.55 over nite: the language model decides (+1.50), against the channel (−0.15)."
    assert call("ranking", "verdict", PARTS, weights) == sentence
    assert call("ranking", "verdict", PARTS, dict.fromkeys(weights, 0)) == "night and nite are level."


def test_words_are_read_once_a_space_follows_and_characters_at_once(call):
    assert call("pieces", "piecesOf", "the old ow", "words", False) == ["the", "old"]
    assert call("pieces", "piecesOf", "the old ow", "words", True) == ["the", "old", "ow"]
    assert call("pieces", "piecesOf", "né", "chars", False) == ["n", "é"]


def served(source, target, ended, **keys):
    """An answer of the server about a lattice."""
    answer = {"source": source, "target": target, "ended": ended, "posterior": [], "write": [], "written": len(target)}
    return {**answer, "method": "alignment", "rows": [0] * len(target), "next": [], **keys}


def test_next_tokens_are_compared_where_reading_on_is_all_but_certain(call):
    column = {"summed": [["N", 3e-9], ["K", 1e-9]], "best_path": [["N", 0.8]], "read_on": 1.0}
    lattice = call("lattice_answers", "servedLattice", served(["k"], [], False, next=[column]), None)
    assert lattice["next"] == [
        [{"token": "N", "summed": 0.75, "bestPath": 0.8}, {"token": "K", "summed": 0.25, "bestPath": None}]
    ]


def test_the_policy_wrote_in_rows_that_it_had_read(call):
    hangul = served(["ᄀ", "ᅡ", "ᆫ", "ᄂ"], ["k", "a"], False)
    rows = call("lattice_answers", "servedLattice", hangul, {"read": 4, "readBefore": [2, 4]})["writtenAt"]
    assert rows == [1, 3]
    other = call("lattice_answers", "servedLattice", hangul, {"read": 2, "readBefore": [1, 2]})["writtenAt"]
    assert other is None  # what was read are not the symbols of these rows


@pytest.mark.parametrize("policy", ["greedy", "beam"])
def test_the_slider_waits_on_the_left_and_hurries_on_the_right(call, policy):
    knob = {"greedy": lambda state: state["bias"], "beam": lambda state: -state["margin"]}[policy]
    shown = call("delay", "delayOf", policy, {"bias": 0, "margin": None}, 1.0)
    for position in (shown["least"], -0.5, 0, shown["most"]):
        state = {"bias": 0, "margin": None, **call("delay", "delayChange", policy, position)}
        assert knob(state) == position  # a higher bias and a narrower margin write sooner
        assert call("delay", "delayOf", policy, state, 1.0)["position"] == position


def test_the_slider_says_what_it_changes(call):
    state = {"bias": 1.25, "margin": None}
    assert call("delay", "delayOf", "greedy", state, 1.0)["value"] == "bias +1.3"
    assert call("delay", "delayOf", "beam", state, 1.0)["value"] == "margin 1.0"
    assert call("delay", "delayOf", "beam", state, None)["value"] == "all agree"
    assert call("delay", "delayOf", "beam", {"bias": 0, "margin": 2}, None)["value"] == "margin 2.0"


def test_the_last_number_of_the_explanation_is_on_the_staircase_or_at_the_largest_attention(call):
    lattice = {"source": ["a", "b", "c"], "rows": [0, 2], "method": "alignment"}
    assert call("geometry", "badgePlaces", lattice, {"cellWidth": 100})[2:] == [[0.25, 0.15], [1.5, 1]]
    attention = {**lattice, "rows": [2, 0], "method": "attention"}
    assert call("geometry", "badgePlaces", attention, {"cellWidth": 100})[2:] == [[2.25, 0.15], [0.25, 1.15]]
    assert len(call("geometry", "badgePlaces", {**lattice, "rows": []}, {"cellWidth": 100})) == 4


def test_a_large_lattice_paints_only_what_is_seen(page):
    painted = page.evaluate(
        """async () => {
          const { LatticePicture } = await import("./lattice.js");
          const host = document.createElement("div");
          host.className = "figure";
          host.style.cssText = "height: 500px; width: 900px";
          document.body.append(host);
          const picture = new LatticePicture(host, "large", () => {});
          const symbols = Array.from({ length: 500 }, (_, index) => `s${index}`);
          const posterior = symbols.map((_, row) => symbols.map((_, column) => (row === column ? 1 : 0)));
          let boxes = 0;
          const original = CanvasRenderingContext2D.prototype.roundRect;
          CanvasRenderingContext2D.prototype.roundRect = function (...given) {
            boxes += 1;
            return original.apply(this, given);
          };
          picture.show({
            source: symbols, target: symbols, rows: symbols.map((_, index) => index), posterior, emit: null, next: null,
            complete: true, decided: 500, method: "alignment", writtenAt: null,
          });
          const size = [picture.spacer.offsetWidth > 5000, picture.spacer.offsetHeight > 5000];
          boxes = 0;
          picture.draw();
          return { boxes, size, scrolled: [picture.scroller.scrollLeft, picture.scroller.scrollTop] };
        }"""
    )
    assert painted["size"] == [True, True]
    assert 100 < painted["boxes"] < 2000
    assert painted["scrolled"] == [0, 0]
