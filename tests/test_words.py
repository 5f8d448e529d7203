"""Pages and messages are plain English: none of the phrases that made readers stop, no symbol that a page has not introduced."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "gwi"
# Pages of the theory speak the paper's language, decisions and results their own.
THEORY = (
    "architecture.md",
    "deviations.md",
    "equations.md",
    "figures.md",
    "method.md",
    "method-context.md",
    "method-covariance.md",
    "notation.md",
)
USER_PAGES = sorted(
    [
        ROOT / "README.md",
        *(page for page in DOCS.glob("*.md") if page.name not in THEORY),
        *(page for folder in ("coming-from", "gallery") for page in (DOCS / folder).glob("*.md")),
    ]
)

# What a number may be counted by, where "a" is meant as "per".
COUNTED = (
    r"(?:once|twice|times|M[²³]|\d+|flops|bytes|[kMG]B|[mµ]?s|(?:milli|micro)?seconds?|minutes|hours|messages?|numbers?|values?|columns?|"
    r"rows?|covariances?|length-scales?|networks?|outputs?|points?|fits?|trees?|bools?|probabilit(?:y|ies)|intervals?|nouns?|equations?|passes)"
)
# "Rows a second" is how people speak; "a row" for each row is not.
PER = r"(?:row|column|class|set|split|fold|target|step|pass|file|module|value|process|machine|stratum|draw|point|core)"

# The phrase, and what to write in its place.
FOREIGN = {
    rf"\b{COUNTED} an? {PER}\b(?! (?:of|that|which|is|has|from|in|with|at|by)\b)": "per row, per class, …",
    r"\ba (?:set|table|split), which (?:stays|stands)": "one … per data set, which does not change",
    r"(?<!as )\b(?:it|they) stands?\b(?! for\b)|\bstands? around\b": "it holds; it wraps",
    r"\bseen too early\b|\blooked at too early\b": "results we saw before fixing a choice",
    r"\blaws?\b": "predictive distribution",
    r"\b(?:judging|late) rows\b|\brows? (?:that |which )?(?:have |has )?judge[sd]?\b|\bwho judges\b": "held-out rows",
    r"\bjudge[sd]? (?:it|itself|the fit|fits|means|all of them|by)\b|\bjudges\b": "score, measure, choose on held-out rows",
    r"\bback to the prior\b": "0 for inputs like the training data, 1 far away from all of it",
    r"\(they would(?: not)?\)|\bwould (?:not )?cure\b": "shrinks with more data",
    r"\bno plain form\b|\brefused with a sentence\b": "raises …Error, which says what to do instead",
    r"\bTitsias' where\b|\bhas? every row as an?\b|\bweighs? differently\b": "name the case, then what is used",
    r"\bthe whole of it\b|\ball of it is there\b|\bso many rows\b": "say what 'it' is",
    r"\bas it came\b|\bas they came\b|\bwhat comes\b(?! back)": "new rows, unchanged",
    r"\b(?:is|are) (?:such )?as chance\b|\bby lot\b": "randomised, by chance",
    r"\bspeaks? (?:for|of) (?:it|them|the)\b|\bsays most\b": "say what it measures",
    r"\bstrange(?:r|st|ness)? (?:rows?|images?|inputs?)\b": "outliers",
    r"\bbrothers\b|\bat home\b|\bhand(?:s|ed)? over to\b|\bin company\b": "say it without the picture",
}
# More that messages had: the phrase, and what to write in its place.
FOREIGN_IN_MESSAGES = {
    r"(?<!there )\bis no (?!more\b|longer\b|better\b)": "is not a …",
    r"(?<!there )\b(?:is|are) (?-i:none)\b(?! so far)": "is not one of …, is invalid",
    r"\bpart(?:ed|ing)? by\b|\bpart several\b": "separated by",
    r"\btruth values?\b": "booleans",
    r"\bfrom [01] on\b": "of at least 0, at least 1",
    r"\b(?:comes?|came) twice\b|\banew\b|\bmend(?:s|ed)?\b": "is given twice; again; correct",
    r"\bjudg(?:e|es|ed|ing)\b": "held out, scored, measured",
    r"\brows held out\b(?! from)": "held-out rows",
    r"\b(?:less|more|too) sure\b|\bsurer\b": "certain, uncertain, overconfident",
    r"\bstands? there\b|\bnobody (?:measured|looked)\b": "is there; without data",
    r"\bas is wanted\b|\b(?:is|are) wanted\b|\bwant two\b": "expected",
    r"\bknows the levels\b|\bknows no\b": "was fitted to; takes no",
}

# Symbols of the theory, how each is found in prose, and a word by which a page introduces it, in the sentence of its first use.
ALONE = r"(?<![\w'’`.-]){}(?![\w'’`-])"
SYMBOLS = {
    "m_Q": (r"\bm_Q\b", "mean"),
    "m_P": (r"\bm_P\b", "mean"),
    "Σ": (r"Σ(?! exp\b)", "covariance"),
    "β": (r"β(?!-)(?:_match)?", "weight|coefficient"),
    "r": (ALONE.format("r"), "variance|kernel|correlation"),
    "S": (ALONE.format("S"), "covariance"),
    "Z": (ALONE.format("Z"), "inducing points"),
    "R₀": (r"R₀", "inducing points"),
    "α_T": (r"α_T", "tempering"),
}


# Tables that are written from records have a round of their own: benchmarks/render.
NOT_PROSE = (
    *(r"^ *```.*?^ *```", r"<!-- table: .*?<!-- end -->", r"<!--.*?-->", r"`[^`\n]*`"),
    *(r"(?<=\])\([^)\n]*\)", r"https?://\S+"),
)
TABLE = r"^ *\|[^\n]*"


def prose(text, *more):
    """A page without code, comments and targets of links, each replaced by blanks, so that lines keep their numbers."""

    def blank(found):
        return re.sub(r"[^\n]", " ", found[0])

    for pattern in (*NOT_PROSE, *more):
        text = re.sub(pattern, blank, text, flags=re.DOTALL | re.MULTILINE)
    return text


def findings(text):
    """Each phrase or symbol that a page should not have: its line, what was found, and what to write."""
    plain, found = prose(text), []
    for pattern, better in FOREIGN.items():
        matches = re.finditer(pattern, plain, re.IGNORECASE)
        found.extend((match.start(), f"“{' '.join(match[0].split())}”: {better}") for match in matches)
    plain = prose(text, TABLE)
    for symbol, (pattern, word) in SYMBOLS.items():
        first = re.search(pattern, plain)
        if first is None:
            continue
        begin = max(plain.rfind(end, 0, first.start()) for end in (". ", ".\n", "\n\n", ": ", "? "))
        stop = re.compile(r"\.\s|\n\n|\Z").search(plain, first.end()).start()
        if not re.search(rf"\b(?:{word})", plain[begin + 1 : stop], re.IGNORECASE):
            found.append((first.start(), f"“{symbol}” is not introduced: say what it is at its first use, or use words"))
    return [(text.count("\n", 0, place) + 1, said) for place, said in sorted(found)]


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_for_users_is_plain_english(page):
    assert [f"{page.relative_to(ROOT)}:{line}: {said}" for line, said in findings(page.read_text())] == []


def texts_of(file: Path) -> Iterator[tuple[int, str]]:
    """What a file of the package may show to a user, each text with its line: of code no docstrings and no types."""
    if file.suffix != ".py":
        yield from enumerate(re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "7", file.read_text(), flags=re.DOTALL).splitlines(), 1)
        return
    tree, hidden = ast.parse(file.read_text()), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            hidden.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            hidden |= {part for part in ast.walk(node) if part is not node and isinstance(part, ast.Constant)}
        elif isinstance(node, ast.Subscript):
            called = {part for call in ast.walk(node.slice) if isinstance(call, ast.Call) for part in ast.walk(call)}
            hidden |= {part for part in ast.walk(node.slice) if isinstance(part, ast.Constant)} - called
    for node in ast.walk(tree):
        if node in hidden:
            continue
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


MESSAGES = sorted(
    path
    for path in SOURCE.rglob("*")
    if path.suffix in (".py", ".j2", ".html") and path != SOURCE / "tables" / "pipelines.py"  # names of steps in model files
)


def foreign_in(text: str) -> list[str]:
    """The phrases that a message should not have, each with what to write."""
    patterns = FOREIGN | FOREIGN_IN_MESSAGES
    return [f"“{found[0]}”: {patterns[p]}" for p in patterns if (found := re.search(p, text, re.IGNORECASE))]


@pytest.mark.parametrize("folder", sorted({path.relative_to(SOURCE).parts[0] for path in MESSAGES}))
def test_messages_of_the_package_are_plain_english(folder):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {said}"
        for path in MESSAGES
        if path.relative_to(SOURCE).parts[0] == folder
        for line, text in texts_of(path)
        for said in foreign_in(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("7 is no number", "is no "),
        ("separate them: they are parted by commas", "parted by"),
        ("rows judge it", "judge"),
        ("the model is less sure there", "less sure"),
        ("a law of y", "law"),
        ("it gives 2 outputs a row", "outputs a row"),
    ],
)
def test_foreign_phrases_of_messages_are_found(text, phrase):
    assert any(phrase in said for said in foreign_in(text))


def test_what_users_see_is_read_and_docstrings_and_types_are_not(tmp_path):
    file = tmp_path / "module.py"
    code = '''"""A law, told."""\nx: Annotated[Float["a law"], Option(help="a help text")]\ny: dict["a law", int]\n'''
    file.write_text(code + """raise ValueError(f"{x} is no number")\n""")
    assert sorted(text for _, text in texts_of(file)) == ["7 is no number", "a help text"]


FOUND = {
    "Prediction costs M² a row.": "M² a row",
    "One sparse-GP covariance a class.": "covariance a class",
    "Around one trained image network a set, which stays as it is.": "a set, which stays",
    "It is a joint law of f.": "law",
    "Held-out rows are those that rows judge.": "rows judge",
    "With what was seen too early.": "seen too early",
    "A plain function is refused with a sentence.": "refused with a sentence",
    "How far it is back to the prior's variance.": "back to the prior",
    "What Z cannot express.": "“Z”",
    "Then r is large.\n\nThe variance r.": "“r”",
    "β is large.": "“β”",
    "| a table |\n| --- |\n\nIt is a law.": "law",
    "| `ood_score` | how far r is back to the prior's variance |": "back to the prior",
}
PLAIN = [
    "Prediction costs M² per row, one covariance per class.",
    "The inducing points Z are rows. Z is small.",
    "The weight β multiplies the distance. With β = 1 nothing changes.",
    "r, the variance of f, shrinks with more data.",
    "A row of a class in a column; ten points a row has.",
    "`r`, `S` and `law` are code.\n\n```text\nlaw a row\n```\n\n| S | β |\n",
    "R² and S-shaped curves.",
    "The β-divergence and −log Σ exp of the logits; what it stands for is unchanged.",
    "| a | b |\n\nWhat comes back is a row.",
]


@pytest.mark.parametrize("text", FOUND)
def test_foreign_phrases_and_unknown_symbols_are_found(text):
    assert any(FOUND[text] in said for _, said in findings(text)), findings(text)


@pytest.mark.parametrize("text", PLAIN)
def test_plain_sentences_code_and_tables_are_left_alone(text):
    assert findings(text) == []
