"""How Sphinx makes the site of these pages: `make docs`, warnings are errors."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import sys
from pathlib import Path

from nbclient import NotebookClient
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.highlighting import lexers

import dkfeat

HERE = Path(__file__).parent
PACKAGE = Path(dkfeat.__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "dkfeat"
author = project_copyright = "The dkfeat developers"
version = release = dkfeat.__version__
html_title = f"dkfeat {release}"

extensions = [
    "myst_nb",  # Markdown pages and notebooks
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",  # cards and tabs
    "sphinx_gallery.gen_gallery",
    "benchmark_marks",  # these seven are in _ext
    "changes_page",
    "command_help",
    "linked_names",
    "mathml",
    "results_page",
    "search_words",
]
exclude_patterns = ["_build", "_templates", "**.ipynb_checkpoints", "examples", "gallery/**.ipynb"]
templates_path = ["_templates"]

# Markdown
highlight_language = "text"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# Notebooks are run when they or the package change; one that fails fails the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
logging.getLogger("traitlets").setLevel(logging.WARNING)  # it tells of each notebook that it runs
NotebookClient.extra_arguments.default_args = (["--log-level=ERROR"],)  # each kernel tells that it has no encryption

# Gallery: examples are run when they or the package change.
os.environ["DASK_LOGGING__DISTRIBUTED"] = "warning"  # it tells of each worker that ends
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib", "gallery.set_style"),
    "image_srcset": ["2x"],
    "capture_repr": (),
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 600,
    "write_computation_times": False,
}

# Reference
default_role = "autolink"
add_module_names = False
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's Parameters give types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the template of a class lists them
numpydoc_xref_param_type = True
numpydoc_xref_aliases = {
    "bool": ":class:`python:bool`",
    "CSR": "scipy.sparse.csr_matrix",
    "csr_matrix": "scipy.sparse.csr_matrix",
    "DataFrame": "pandas.DataFrame",
    "mapping": ":term:`python:mapping`",
    "Path": "pathlib.Path",
    "Series": "pandas.Series",
    "sparse": ":mod:`sparse <scipy.sparse>`",
    "Source": ":doc:`Source </reference/sources-and-shards>`",
}
nitpicky = True
nitpick_ignore_regex = [("py:obj", r"[a-z_]\w*|[A-Z_]+")]  # single words in the text, most of them parameters
python_use_unqualified_type_names = True

html_math_renderer = "mathml"
html_search_scorer = str(HERE / "_ext" / "search_scorer.js")
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/logo-light.svg"
html_theme_options = {
    "light_logo": "logo-light.svg",
    "dark_logo": "logo-dark.svg",
    "navigation_with_keys": True,
    "top_of_page_buttons": [],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

lexers["cron"] = TextLexer()  # Pygments has none


def bring_notebooks(_: Sphinx) -> None:
    """Copy the notebooks below docs/, where Sphinx looks for pages, with links that hold there."""
    folder = HERE / "notebooks"
    folder.mkdir(exist_ok=True)
    texts = {path.name: path.read_text(encoding="utf-8") for path in (HERE.parent / "notebooks").glob("*.ipynb")}
    for path in folder.glob("*.ipynb"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        adapted = re.sub(r"\]\(\.\./(docs/)?", lambda link: "](../" if link[1] else "](../../", text)
        if not path.exists() or path.read_text(encoding="utf-8") != adapted:  # what did not change is not run again
            path.write_text(adapted, encoding="utf-8")


def forget_outputs(app: Sphinx) -> None:
    """Clear the outputs of notebooks and examples that another state of the package made."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.read_bytes())
    cache = Path(app.config.nb_execution_cache_path)
    mark = cache / "package.sha256"
    if not mark.exists() or mark.read_text(encoding="ascii") != digest.hexdigest():
        shutil.rmtree(cache, ignore_errors=True)
        shutil.rmtree(HERE / "gallery", ignore_errors=True)
        cache.mkdir(parents=True)
        mark.write_text(digest.hexdigest(), encoding="ascii")


def drop_stale_stubs(_: Sphinx) -> None:
    """Delete pages of the reference that autosummary made for names which are listed no more."""
    listed = "\n".join(path.read_text(encoding="utf-8") for path in (HERE / "reference").glob("*.md"))
    for stub in (HERE / "reference" / "generated").glob("*.rst"):
        if not re.search(rf"^   ~?{re.escape(stub.stem)}$", listed, re.MULTILINE):
            stub.unlink()


def setup(app: Sphinx) -> None:
    """Connect what is above."""
    app.connect("builder-inited", drop_stale_stubs, priority=400)  # before autosummary, which makes the others
    app.connect("builder-inited", bring_notebooks)
    app.connect("builder-inited", forget_outputs, priority=400)  # before the gallery is made
    app.connect("env-get-outdated", lambda _, env, *__: [n for n in env.found_docs if n.startswith("notebooks/")])
