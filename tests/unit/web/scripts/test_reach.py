"""How long the pages' JavaScript waits for the JobManager, run by Node.js where it is installed."""

import pytest

from tests.unit.web.conftest import JavaScript

SILENT = "() => {}"
CUT_OFF = '(_, reply) => { reply.writeHead(200); reply.write("{"); }'
SLOW = '(_, reply) => setTimeout(() => reply.end("{}"), 50)'

SERVER = """
import {{ createServer }} from "node:http";
const timeout = AbortSignal.timeout.bind(AbortSignal);
const limits = [];
AbortSignal.timeout = (milliseconds) => {{
  limits.push(milliseconds);
  return timeout(5);
}};
const server = createServer({answer});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const asked = reach.reach(`http://127.0.0.1:${{server.address().port}}/`, {options});
const found = await asked.then(problems.bodyOf).catch((error) => error.message);
server.closeAllConnections();
server.close();
"""


@pytest.mark.parametrize("answer", [SILENT, CUT_OFF])
@pytest.mark.parametrize("options", ["undefined", '{cache: "no-store"}', "{signal: timeout(5)}"])
def test_a_question_that_is_not_answered_ends(javascript: JavaScript, answer: str, options: str) -> None:
    before = SERVER.format(answer=answer, options=options)
    assert javascript(["reach", "problems"], "found", before=before) == "the JobManager has not answered in time"


def test_a_question_has_a_minute_and_a_change_no_limit(javascript: JavaScript) -> None:
    question = SERVER.format(answer=SILENT, options="{}")
    assert javascript(["reach", "problems"], "limits", before=question) == [60_000]
    change = SERVER.format(answer=SLOW, options='{method: "POST"}')
    assert javascript(["reach", "problems"], "[found, limits]", before=change) == [{}, []]
