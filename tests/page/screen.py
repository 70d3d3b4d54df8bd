"""The page as a visitor sees and uses it."""

from urllib.parse import urlencode


class Screen:
    """A page of the server, with everything that it complains about and asks for."""

    def __init__(self, context, address):
        self.address = address
        self.problems, self.requested = [], []
        self.page = context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("console", lambda message: self._note(message.type in ("error", "warning"), message.text))
        self.page.on("pageerror", lambda error: self._note(True, str(error)))
        self.page.on("dialog", lambda dialog: self._note(True, dialog.message))
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("websocket", lambda socket: self.requested.append(socket.url))

    def _note(self, is_problem, text):
        if is_problem:
            self.problems.append(text)

    def open(self, **state):
        """Opens a link to a state of the page; the given keys are those of its address."""
        self.page.goto(f"{self.address}/#{urlencode(state, doseq=True)}")
        return self.page

    def type(self, text, end=False):
        """Types an input as a person does, and ends it if told so."""
        self.page.locator("#text").fill("")
        self.page.locator("#text").press_sequentially(text)
        if end:
            self.page.keyboard.press("Enter")

    def wait(self, condition, argument=None):
        """Waits until a condition in JavaScript holds."""
        self.page.wait_for_function(condition, arg=argument)

    def wait_for_lattice(self, source, target):
        """Waits until the first lattice is that of a whole input and its output, after which it is not drawn again."""
        self.wait(
            "([rows, columns]) => { const table = document.querySelector('.pane:first-child .lattice-table');"
            " return table?.querySelectorAll('tbody tr').length === rows"
            " && table.querySelectorAll('thead th').length === columns; }",
            [len(source) + 1, len(target) + 1],
        )

    def open_predicted(self, **state):
        """Opens a link to an input that has ended, and waits for the candidates that the server predicts."""
        with self.page.expect_response("**/api/predict") as answer:
            self.open(**state)
        (prediction,) = answer.value.json()["predictions"]
        self.wait_for_candidates(self.page, [each["text"] for each in prediction["nbest"]])
        return self.page

    @staticmethod
    def wait_for_candidates(page, texts):
        """Waits until these are the outputs of all candidates, in this order."""
        page.wait_for_function(
            "texts => JSON.stringify(texts) === "
            "JSON.stringify([...document.querySelectorAll('.output button')].map(each => each.innerText))",
            arg=texts,
        )

    def wait_for_style(self, selector, name, value):
        """Waits until the first element of a kind, which every answer may draw anew, has a style."""
        self.wait(
            "([selector, name, value]) => "
            "getComputedStyle(document.querySelector(selector) ?? document.body)[name] === value",
            [selector, name, value],
        )

    def wait_for_output(self, text):
        """Waits until a run has written exactly this."""
        self.wait(
            "text => [...document.querySelectorAll('.written')]"
            ".some(each => each.innerText.replace(/\\s/g, '') === text)",
            text,
        )

    @property
    def written(self):
        """What the first run has decided to write, without spaces."""
        return "".join(self.page.locator(".pane:first-child .token:not(.is-pending)").all_inner_texts())

    @property
    def candidates(self):
        """The outputs of the candidates of the first run, in their order."""
        return self.page.locator(".candidate-list:first-child .output button").all_inner_texts()

    def set_slider(self, selector, value):
        """Moves a slider."""
        self.page.locator(selector).fill(str(value))
