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
        "prefix": ["a", " ", "&"],
        "weights": [1, 0.25, 0, 2],
        "question": "who?",
        "sentences": ["one", "", "two"],
    }
    assert call("link", "fromHash", call("link", "toHash", state)) == state


def test_nonsense_in_an_address_is_ignored(call):
    state = call("link", "fromHash", "#bias=x&weights=1&weights=NaN&policy=odd&ended=perhaps")
    assert (state["bias"], state["weights"], state["policy"], state["ended"]) == (0, [], "greedy", False)


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
          return { boxes, size };
        }"""
    )
    assert painted["size"] == [True, True]
    assert 100 < painted["boxes"] < 2000
