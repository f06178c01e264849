"""Split Java options into words as Spark does: it uses one notation for drivers, and another one for executors."""

from __future__ import annotations


class UnreadableWords(ValueError):
    """A text cannot be split. ``hint``: what the user can do."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.hint = hint


def split_words(text: str, *, bare_escapes: bool) -> list[str]:
    """Return the words. Raises UnreadableWords (an open quote, or nothing behind the last backslash).

    Between double quotes, a backslash stands for the next character. Between single quotes, it is a backslash. Outside
    of quotes, it stands for the next character if ``bare_escapes`` (drivers); else it is a backslash (executors).

    >>> split_words(r"-Da='b c' -Dd=\\d", bare_escapes=False)
    ['-Da=b c', '-Dd=\\\\d']
    """
    words: list[str] = []
    word: str | None = None  # None between two words
    quote = ""
    characters = iter(text)
    for character in characters:
        if character == "\\" and (quote == '"' or (bare_escapes and not quote)):
            escaped = next(characters, None)
            if escaped is None:
                raise UnreadableWords("nothing follows the last backslash", "write a backslash as \\\\")
            word = (word or "") + escaped
        elif quote:
            quote, word = ("", word) if character == quote else (quote, (word or "") + character)
        elif character in ("'", '"'):
            quote, word = character, word or ""
        elif not character.isspace():
            word = (word or "") + character
        elif word is not None:
            words.append(word)
            word = None
    if quote:
        raise UnreadableWords("no closing quotation", "close the quote")
    return words if word is None else [*words, word]
