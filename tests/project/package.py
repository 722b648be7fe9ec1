"""`make package`: wheel and sdist are built from this tree, and what is in them is checked."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from markdown_it import MarkdownIt
from packaging.metadata import Metadata

import bnnp

ROOT = Path(__file__).parents[2]
MUST_HAVE = ("py.typed", "zoo/sawtooth.bnnp", "data/paper_tests/sawtooth.csv", "cli/entry.py", "app/page/page.html")
IN_THE_SDIST = ("LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "tests/conftest.py")
NOT_IN_THE_SDIST = re.compile(r"benchmarks/|experiments/\w+/results/|\.github/|docs/.*\.png|site/|demo/|\.venv/|dist/")
MEGABYTES = 5.0
"""The most that either may have."""


def build(folder: Path) -> tuple[Path, Path]:
    """Wheel and sdist of this tree, without a network."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True, stdout=2)
    (wheel,), (sdist,) = (list(folder.glob(f"bnnp-{bnnp.__version__}{end}")) for end in ("-*.whl", ".tar.gz"))
    return wheel, sdist


def check_wheel(wheel: Path) -> None:
    """It holds the package and nothing else."""
    source = ROOT / "src" / "bnnp"
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    wanted = {name for name in wanted if "__pycache__" not in name}
    names = zipfile.ZipFile(wheel).namelist()
    assert set(MUST_HAVE) <= wanted
    assert {name.removeprefix("bnnp/") for name in names if name.startswith("bnnp/")} == wanted
    rest = {name.split("/")[0] for name in names if not name.startswith("bnnp/")}
    assert rest == {f"bnnp-{bnnp.__version__}.dist-info"}


def check_sdist(sdist: Path) -> None:
    """It holds what the wheel is built from, and tests and documents; neither benchmarks nor results nor figures."""
    with tarfile.open(sdist) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames()]
    assert set(IN_THE_SDIST) <= set(names)
    assert [name for name in names if NOT_IN_THE_SDIST.match(name)] == []
    kept = {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert {name for name in kept if "__pycache__" not in name} <= set(names)


def check_metadata(wheel: Path) -> Metadata:
    """They are valid by the standard, and the version is that of the package, the citation and the changelog."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"bnnp-{bnnp.__version__}.dist-info/METADATA")
    found = Metadata.from_email(text, validate=True)
    assert (found.name, str(found.version)) == ("bnnp", bnnp.__version__)
    assert (found.license_expression, str(found.requires_python)) == ("MIT", ">=3.11")
    needed = [requirement for requirement in found.requires_dist or [] if requirement.marker is None]
    assert len(needed) >= 10
    assert all(">=" in str(requirement.specifier) for requirement in needed)
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {bnnp.__version__}\n" in citation
    assert f'url: "{(found.project_urls or {})["Paper"]}"' in citation
    assert re.search(rf"^## {re.escape(bnnp.__version__)} \(", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    return found


def check_readme(metadata: Metadata) -> None:
    """What a package index shows of it needs nothing that does not come along."""
    assert metadata.description_content_type == "text/markdown"
    shown = MarkdownIt("commonmark").enable("table").render(metadata.description or "")
    assert shown.startswith("<h1>bnnp</h1>")
    assert '<pre><code class="language-python">' in shown
    assert re.findall(r'(?:src|href)="(?!https://)[^"]*"', shown) == []


def check_size(*files: Path) -> None:
    for file in files:
        assert file.stat().st_size < 1e6 * MEGABYTES, f"{file.name} has {file.stat().st_size / 1e6:.1f} MB"


def main(folder: Path) -> None:
    wheel, sdist = build(folder)
    check_wheel(wheel)
    check_sdist(sdist)
    check_readme(check_metadata(wheel))
    check_size(wheel, sdist)
    for file in (wheel, sdist):
        print(f"{file}: {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve())
