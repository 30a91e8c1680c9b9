"""Words that the code and the documentation do without: docs/glossary.md has those of the
project.
"""

import inspect
import re
from pathlib import Path

import pytest

import advfrontier
from advfrontier import solvers

ROOT = Path(__file__).parents[2]

# Words of what is gone, and the words to use instead.
GONE = {
    r"races?|raced|racing": "an ensemble (a race condition is fine)",
    r"polish(?:es|ed|ing)?": "a refinement, to refine",
    r"lanes?": "the rows of a shard",
    r"hopes?": "what exactly is expected",
    r"packing|pack=\d*": "nothing: a unit has a batch of its own",
    r"(?:take|takes|taking|its|last|first|a) turns?": "steps, alternately",
}
# Phrases without a noun or an agent.
VAGUE = {
    r"so many": "the number itself, such as `count`",
    r"none of it": "a noun",
    r"that of the": "the noun again",
    r"stands? beside": "is printed next to",
    r"told": "a verb with an agent: reports, prints, says",
    r"goes? on": "resumes, continues",
    r"what is typed": "command-line options",
    r"whoever": "a named person or thing",
    r"no hindrance": "is fine",
}
PHRASES = {**GONE, **VAGUE}
ALLOWED = re.compile(r"race conditions?|Fixed ensembles replace races", re.IGNORECASE)


def pages():
    """Return README, the documentation and the code, in a fixed order."""
    named = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    written = sorted((ROOT / "docs").rglob("*.md"))
    code = sorted((ROOT / "src").rglob("*.py"))
    return [*named, *written, *code]


def phrases_in(text):
    """Return phrases to replace as `line: phrase, use …`."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for phrase, instead in PHRASES.items():
            match = re.search(rf"\b(?:{phrase})\b", ALLOWED.sub("", line), re.IGNORECASE)
            if match:
                found.append(f"line {number}: {match[0]!r}, use {instead}")
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_page_has_no_phrase_to_avoid(page):
    assert phrases_in(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Every race polishes.", 2),
        ("a race condition between two writers", 0),
        ("brace, trace, embrace, untold, lanewise, hopeful", 0),
        ("The same command goes on.\nSo many samples are told.", 3),
        ("Runs take turns, and turn into curves.", 1),
    ],
)
def test_phrases_in_finds_whole_words(text, count):
    assert len(phrases_in(text)) == count


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700


def test_glossary_defines_the_words_of_the_project():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    assert words == [
        "Run",
        "Query",
        "Budget",
        "Ensemble",
        "Step",
        "Refinement",
        "Record",
        "Shard",
        "Flag",
        "Frontier",
    ]


# An entry of `Args` that repeats the name or the type of its parameter, such as "model: The model."
EMPTY = re.compile(r"^ {4,}\w+: (?:The|A|An|Its|Their|Some) \w+\.$", re.MULTILINE)


def test_no_parameter_is_described_by_its_name_alone():
    found = []
    for page in sorted((ROOT / "src").rglob("*.py")):
        found += [f"{page.name}: {line.strip()}" for line in EMPTY.findall(page.read_text("utf-8"))]
    assert found == []
    assert EMPTY.search("    model: The model.")


def documented(item):
    """Return the parameters in the docstrings of a function, or of a class and its bases."""
    texts = [inspect.getdoc(item) or ""]
    if isinstance(item, type):
        texts += [base.__doc__ or "" for base in item.__mro__]
    names = set()
    for text in texts:
        names.update(
            re.findall(r"^ {4,}\*{0,2}(\w+): ", text.partition("Args:\n")[2], re.MULTILINE)
        )
    return names


@pytest.mark.parametrize("module", [advfrontier, solvers], ids=["advfrontier", "solvers"])
def test_public_functions_and_classes_document_every_parameter(module):
    found = []
    for name in module.__all__:
        item = getattr(module, name)
        if name != "Solver" and (inspect.isfunction(item) or isinstance(item, type)):
            missing = set(inspect.signature(item).parameters) - documented(item)
            found += [f"{name}({parameter})" for parameter in sorted(missing)]
    assert found == []
