"""Each message that docs/troubleshooting.md quotes is one of ours or of the system, word by word."""

import errno
import os
import re
import signal
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/troubleshooting.md"
SOURCES = ("formats", "images", "packer", "loader", "trainer-bridge")
REST_OF_LITERAL = re.compile(r'(?:[^"\n\\]|\\.)*')
OF_THE_SYSTEM = {os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EACCES)} | {
    signal.strsignal(signal.SIGBUS)
}


def of_torch() -> str:
    """What torch says to a model that flattens what is not contiguous."""
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2, 3, 4, 4).contiguous(memory_format=torch.channels_last).view(2, -1)
    return str(raised.value)


def sources() -> str:
    """The text of all sources, tests aside, with each message on one line."""
    files = (file for folder in SOURCES for kind in ("rs", "py") for file in (ROOT / folder).glob(f"**/*.{kind}"))
    texts = (file.read_text(encoding="utf-8") for file in files if not {"tests", "target"} & set(file.parts))
    # A Rust message goes on behind a backslash, a Python one in a neighbouring literal.
    return re.sub(r'"\n\s*f?"', "", re.sub(r"\\\n\s*", "", "\n".join(texts)))


def messages() -> list[str]:
    """What is quoted in the first cells of the page's tables. A quote of one word is a name."""
    rows = re.findall(r"^\| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.M)
    return [quote for row in rows for quote in re.findall(r"`([^`]+)`", row) if " " in quote]


@pytest.fixture(scope="module")
def text() -> str:
    return sources()


def is_in(text: str, message: str) -> bool:
    """Whether one literal has the message's parts in their order. `...` is anything."""
    first, *others = (part.strip() for part in message.split("...") if part.strip())
    for found in re.finditer(re.escape(first), text):
        rest = REST_OF_LITERAL.match(text, found.end())[0]
        if re.search(".*?".join(map(re.escape, others)), rest):
            return True
    return False


def test_there_are_messages_and_the_search_can_fail(text: str) -> None:
    assert len(messages()) > 60
    assert not is_in(text, "no such message ... of ours")
    assert is_in(text, "checksum mismatch: got ..., expected ...")
    assert not is_in(text, "checksum mismatch: ... belongs to user")


@pytest.mark.parametrize("message", messages())
def test_a_quoted_message_is_literal(text: str, message: str) -> None:
    assert message in OF_THE_SYSTEM or message in of_torch() or is_in(text, message)


def test_each_chapter_is_listed_at_the_top() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^## (.*)$", page, re.M)) == set(re.findall(r"\[([^\]]+)\]\(#", page.partition("\n## ")[0]))
