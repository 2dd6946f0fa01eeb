"""Every text for users is in every catalogue, translated and compiled."""

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
# The form in which templatize() writes the texts of a template.
TEMPLATE_TEXT = re.compile(r"""\bu('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]")
ENTRY = re.compile(r'^(msgid|msgid_plural|msgstr|msgstr\[\d\]) (".*")$', flags=re.MULTILINE)


def texts_of_code(tree: ast.AST) -> Iterator[tuple[str, ...]]:
    """Yield the texts that are passed to gettext: one form, or singular and plural."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            forms = {**dict.fromkeys(SINGULAR, 1), **dict.fromkeys(PLURAL, 2)}.get(node.func.id, 0)
            if forms:
                yield tuple(ast.literal_eval(argument) for argument in node.args[:forms])


def texts_of_template(path: Path) -> set[str]:
    written = TEMPLATE_TEXT.findall(templatize(path.read_text(encoding="utf-8")))
    return {ast.literal_eval(text) for text in written}


def texts() -> set[str]:
    """Return every text to translate; a text with a plural by its singular."""
    code = {forms[0] for path in python_files(PACKAGE) for forms in texts_of_code(tree_of(path))}
    templates = sorted((PACKAGE / "templates").rglob("*.html"))
    return code.union(*map(texts_of_template, templates))


def written(language: str) -> dict[str, list[str]]:
    """Return the translations in the source of the catalogue, by text."""
    path = PACKAGE / "locale" / language / "LC_MESSAGES" / "django.po"
    catalogue: dict[str, list[str]] = {}
    for keyword, literal in ENTRY.findall(path.read_text(encoding="utf-8")):
        if keyword == "msgid":
            translations = catalogue.setdefault(ast.literal_eval(literal), [])
        elif keyword.startswith("msgstr"):
            translations.append(ast.literal_eval(literal))
    del catalogue[""]
    return catalogue


def compiled(language: str) -> dict[str, list[str]]:
    """Return the translations in the compiled catalogue, by text."""
    path = PACKAGE / "locale" / language / "LC_MESSAGES" / "django.mo"
    with path.open("rb") as file:
        catalog = gettext.GNUTranslations(file)._catalog
    catalogue: dict[str, list[str]] = {}
    for key, translation in sorted(catalog.items(), key=str):
        catalogue.setdefault(key if isinstance(key, str) else key[0], []).append(translation)
    del catalogue[""]
    return catalogue


def test_texts_were_found():
    assert {"Redrive", "locked", "as of %(time)s", "%(count)d dead letter purged."} <= texts()
    assert len(texts()) > 150


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogue_has_every_text_and_no_other(language):
    """Otherwise: `django-admin makemessages` in django_mqlite/, translate, `compilemessages`."""
    assert set(written(language)) == texts()


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogue_has_no_untranslated_text(language):
    assert [text for text, translations in written(language).items() if not all(translations)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_translation_has_the_placeholders_of_its_text(language):
    """A missing placeholder would raise KeyError, in that language only."""
    wrong = [
        text
        for text, translations in written(language).items()
        for translation in translations
        if set(PLACEHOLDER.findall(translation)) != set(PLACEHOLDER.findall(text))
    ]

    assert wrong == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_compiled_catalogue_equals_its_source(language):
    assert compiled(language) == written(language)


def test_compiled_catalogues_are_not_ignored_by_git():
    """The build leaves out the files that git ignores."""
    assert "mo" not in (ROOT / ".gitignore").read_text(encoding="utf-8")
