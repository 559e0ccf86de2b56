"""Sphinx's settings.  What a command can produce is produced here, at each build, by the same code as the command's."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]
os.environ["PYTHONPATH"] = str(ROOT)  # for the notebooks' kernels
os.environ["REFIMPL_CALIBRATE"] = "0"  # the same plans on every machine that builds the documentation

import commands  # noqa: E402
import drawings  # noqa: E402
import formulas  # noqa: E402
import generate  # noqa: E402
import reference  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

from refimpl import __version__, cli  # noqa: E402
from refimpl.planner import SLOTS  # noqa: E402

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
toc_object_entries = False  # the theme copies the whole table of contents into every page
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

# The kernels of the pages' cells, and what starts them, say nothing but errors.
profile = HERE / "_build" / "ipython" / "profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text('c.IPKernelApp.log_level = "ERROR"\n', encoding="utf-8")
os.environ["IPYTHONDIR"] = str(profile.parent)
logging.getLogger("traitlets").setLevel(logging.WARNING)

# The pages' cells run when the project changed.  The tutorials do not run here: they are stored with their outputs, and
# tests/test_tutorials.py keeps these current.
sources = sorted(path for folder in ("kernels", "refimpl", "docs/slots") for path in (ROOT / folder).rglob("*.py"))
state = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / f".jupyter_cache-{state}")
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_excludepatterns = ["_generated/tutorials/*"]
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
    "reading-path.md": generate.reading_path(ROOT),
    "measurements.md": generate.measurements_page(HERE / "measurements"),
    **{f"api/{name}.md": reference.room_page(name) for name in reference.ROOMS},
    "api/index.md": reference.index_page(),
    "command.md": commands.command_page(cli.parser()),
    "networks.md": commands.networks_table(),
    "layers.md": commands.layers_table(),
    "operators.md": commands.operators_table(),
    "machines.md": commands.machines_table(),
    "presets.md": commands.presets_table(),
    "json.md": commands.json_table(),
    "slots/index.md": commands.slots_table(),
    **{f"slots/{slot}.md": commands.modules_table(slot) for slot in SLOTS},
    "house.svg": drawings.house(ROOT),
    "flow.svg": drawings.flow(),
}
for name, text in pages.items():
    (generated / name).parent.mkdir(parents=True, exist_ok=True)
    (generated / name).write_text(text, encoding="utf-8")
(generated / "tutorials").mkdir()
for path in sorted((ROOT / "tutorials").glob("*.ipynb")):
    (generated / "tutorials" / path.name).write_text(generate.tutorial(path.read_text("utf-8")), encoding="utf-8")

# Parts of other pages are no pages.
exclude_patterns += [
    f"_generated/{name}.md" for name in ("networks", "layers", "operators", "machines", "presets", "json")
]
exclude_patterns += ["_generated/slots"]


# The two pages that `docs/reports.md` links to.
(generated / "pages").mkdir()
view = ["view", "vgg16", "--batch", "64", "--policy", "vdnn-all", "--machine", "titan-x", "--budget", "6GiB"]
cli.main([*view, "--out", str(generated / "pages" / "vgg16.html")])
cli.main([*view, "--against", "superneurons", "--out", str(generated / "pages" / "against.html")])
html_extra_path = [str(generated / "pages")]
exclude_patterns += ["_generated/pages"]


html_math_renderer = "svg"  # no page needs the network to show a formula


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("svg", (formulas.visit_inline, None), (formulas.visit_block, None))
    app.connect("autodoc-process-docstring", reference.process_docstring, priority=400)  # before napoleon
    app.connect("object-description-transform", reference.drop_long_values)
