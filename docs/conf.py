"""Sphinx's settings.  What a command can produce is produced here, at each build, by the same code as the command's."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]
os.environ["REFIMPL_CALIBRATE"] = "0"  # the same plans on every machine that builds the documentation

import commands  # noqa: E402
import formulas  # noqa: E402
import generate  # noqa: E402
import reference  # noqa: E402
import slides  # noqa: E402
from sphinx.addnodes import pending_xref  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.transforms.post_transforms import SphinxPostTransform  # noqa: E402

from refimpl import __version__, cli  # noqa: E402

project = "refimpl"
author = "the refimpl authors"
copyright = "2026, the refimpl authors"
release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints", "**/.jupyter_cache", "jupyter_execute"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

# The reference: autodoc reads reStructuredText, and `reference.to_rst` makes it of our docstrings.
autodoc_default_options = reference.OPTIONS
autodoc_preserve_defaults = True
autodoc_use_type_comments = False  # there are none, and looking for them takes a tenth of a build
toc_object_entries = False  # the theme copies the whole table of contents into every page
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

# No cell runs here.  Notebooks are stored with their outputs (tests/test_tutorials.py compares them), pages with what
# their blocks print (docs/readme.py rewrites them).
nb_execution_mode = "off"
nb_merge_streams = True

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_title = "refimpl"
html_theme_options = {"sidebar_hide_name": False}

generated = HERE / "_generated"
shutil.rmtree(generated, ignore_errors=True)
pages = {
    "kernels.md": generate.kernels_page(),
    "measurements.md": generate.measurements_page(HERE / "measurements"),
    **{f"api/{name}.md": reference.room_page(name) for name in reference.ROOMS},
    "api/index.md": reference.index_page(),
    "command.md": commands.command_page(cli.parser()),
    "tutorials/README.md": generate.tutorial((ROOT / "tutorials" / "README.md").read_text("utf-8")),
    **{
        f"tutorials/{folder}/{path.name}": generate.tutorial(path.read_text("utf-8"), f"tutorials/{folder}")
        for folder in ("handouts", "guest")
        for path in (ROOT / "tutorials" / folder).glob("*.md")
    },
}
for name, text in pages.items():
    (generated / name).parent.mkdir(parents=True, exist_ok=True)
    (generated / name).write_text(text, encoding="utf-8")
for path in sorted((ROOT / "tutorials").glob("*.ipynb")):
    (generated / "tutorials" / path.name).write_text(generate.tutorial(path.read_text("utf-8")), encoding="utf-8")

# The two pages that `docs/reports.md` links to, and the decks of the course.
(generated / "pages").mkdir()
view = ["view", "vgg16", "--machine", "titan-x", "--batch"]
of_the_picture = [*view, "256", "--policy", "vdnn-dyn", "--budget", "12GiB"]
beside = [*view, "64", "--policy", "vdnn-all", "--budget", "6GiB", "--against", "superneurons"]
cli.main([*of_the_picture, "--out", str(generated / "pages" / "vgg16.html")])
cli.main([*beside, "--out", str(generated / "pages" / "against.html")])
for deck in slides.DECKS:
    (generated / "pages" / f"{deck.stem}.html").write_text(slides.html_of(deck), encoding="utf-8")
html_extra_path = [str(generated / "pages")]
exclude_patterns += ["_generated/pages"]


html_math_renderer = "svg"  # no page needs the network to show a formula


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """For Sphinx's event `source-read`."""
    page = app.env.doc2path(name)
    if page.suffix == ".md" and not name.startswith("_generated/"):
        source[0] = generate.for_the_site(source[0], page)


class NoLongSearch(SphinxPostTransform):
    """A type that no page documents: Sphinx would compare it with the end of every name that one does."""

    default_priority = 5  # before references are resolved

    def run(self, **options: object) -> None:
        documented = {name.rpartition(".")[2] for name in self.env.domains["py"].data["objects"]}
        for node in self.document.findall(pending_xref):
            if node["reftarget"].rpartition(".")[2] not in documented:
                node.attributes.pop("refspecific", None)


def setup(app: Sphinx) -> None:
    app.add_post_transform(NoLongSearch)
    app.connect("source-read", read)
    app.add_html_math_renderer("svg", (formulas.visit_inline, None), (formulas.visit_block, None))
    app.connect("autodoc-skip-member", reference.skip_imported)
    app.connect("autodoc-process-docstring", reference.process_docstring, priority=400)  # before napoleon
    app.connect("object-description-transform", reference.drop_long_values)
