"""Every text for people is in every catalogue, translated, and compiled as it is written."""

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils.translation.template import templatize

from tests.support.source import PACKAGE, ROOT, python_files, tree_of

LANGUAGES = ["de", "es"]
SINGULAR = {"_", "gettext", "gettext_lazy"}
PLURAL = {"ngettext", "ngettext_lazy"}
# How templatize() writes the texts of a template down.
TEMPLATE_TEXT = re.compile(r"""\bu('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]")
ENTRY = re.compile(r'^(msgid|msgid_plural|msgstr|msgstr\[\d\]) (".*")$', flags=re.MULTILINE)


def texts_of_code(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """What is handed to gettext under the names that we give it: one form, or two."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            forms = {**dict.fromkeys(SINGULAR, 1), **dict.fromkeys(PLURAL, 2)}.get(node.func.id, 0)
            if forms:
                yield tuple(ast.literal_eval(argument) for argument in node.args[:forms])


def texts_of_template(path: Path) -> set[str]:
    written = TEMPLATE_TEXT.findall(templatize(path.read_text(encoding="utf-8")))
    return {ast.literal_eval(text) for text in written}


def texts() -> set[str]:
    """Every text that is to be translated; of one with a plural the singular."""
    code = {forms[0] for path in python_files(PACKAGE) for forms in texts_of_code(tree_of(path))}
    templates = sorted((PACKAGE / "templates").rglob("*.html"))
    return code.union(*map(texts_of_template, templates))


def written(language: str) -> dict[str, list[str]]:
    """The catalogue's source: by text its translations."""
    path = PACKAGE / "locale" / language / "LC_MESSAGES" / "django.po"
    found: dict[str, list[str]] = {}
    for keyword, literal in ENTRY.findall(path.read_text(encoding="utf-8")):
        if keyword == "msgid":
            translations = found.setdefault(ast.literal_eval(literal), [])
        elif keyword.startswith("msgstr"):
            translations.append(ast.literal_eval(literal))
    del found[""]
    return found


def compiled(language: str) -> dict[str, list[str]]:
    """The same out of the compiled catalogue, which is what runs."""
    path = PACKAGE / "locale" / language / "LC_MESSAGES" / "django.mo"
    with path.open("rb") as file:
        catalog = gettext.GNUTranslations(file)._catalog
    found: dict[str, list[str]] = {}
    for key, translation in sorted(catalog.items(), key=str):
        found.setdefault(key if isinstance(key, str) else key[0], []).append(translation)
    del found[""]
    return found


def test_the_texts_were_found():
    assert {"Redrive", "locked", "as of %(time)s", "%(count)d queue paused."} <= texts()
    assert len(texts()) > 150


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_catalogue_has_every_text_and_no_other(language):
    """Otherwise: `django-admin makemessages` in django_mqlite/, translate, `compilemessages`."""
    assert set(written(language)) == texts()


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_untranslated(language):
    assert [text for text, translations in written(language).items() if not all(translations)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_the_places_of_its_text(language):
    """A missing one is a KeyError where it is shown, in that language only."""
    wrong = [
        text
        for text, translations in written(language).items()
        for translation in translations
        if set(PLACEHOLDER.findall(translation)) != set(PLACEHOLDER.findall(text))
    ]

    assert wrong == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_catalogue_is_the_written_one(language):
    assert compiled(language) == written(language)


def test_compiled_catalogues_go_into_the_package():
    """The build leaves out what git ignores, and nothing else."""
    assert "mo" not in (ROOT / ".gitignore").read_text(encoding="utf-8")
