"""Model cards of the models that ship: `make cards`. Each page names the checksum of the file that it describes."""

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "cards"
MODELS = sorted(path.stem for path in (ROOT / "src" / "bnnp" / "zoo").glob("*.bnnp"))


def checksum(name: str) -> str:
    return hashlib.sha256((ROOT / "src" / "bnnp" / "zoo" / f"{name}.bnnp").read_bytes()).hexdigest()


def make(name: str) -> None:
    page = PAGES / f"{name}.md"
    words = ["card", f"zoo:{name}", "--source", name, "--out", str(page), "--quiet"]
    subprocess.run([sys.executable, "-m", "bnnp", *words], check=True)
    with page.open("a") as file:
        file.write(f"\n<!-- of the model file with checksum {checksum(name)} -->\n")


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or MODELS:
        make(chosen)
