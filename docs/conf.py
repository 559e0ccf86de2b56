"""Sphinx's settings.  What a command can produce is produced here, at each build, by the same code as the command's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]

import generate  # noqa: E402

project = "refimpl"
author = "the refimpl authors"
copyright = "2026, the refimpl authors"
release = "0.1.0"

extensions = ["myst_nb"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints", "**/.jupyter_cache", "jupyter_execute"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

# Notebooks are stored without outputs; they run when they or the project changed.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / ".jupyter_cache")
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_title = "refimpl"
html_theme_options = {"sidebar_hide_name": False}

generated = HERE / "_generated"
generated.mkdir(exist_ok=True)
(generated / "kernels.md").write_text(generate.kernels_page(), encoding="utf-8")
(generated / "measurements.md").write_text(generate.measurements_page(HERE / "measurements"), encoding="utf-8")
(generated / "api.md").write_text(generate.api_page(), encoding="utf-8")
shutil.copytree(ROOT / "tutorials", generated / "tutorials", dirs_exist_ok=True)
