"""Shipped models, each an .onnx file with a model card beside it, and declarations of published
files of others (`<name>.contract.yaml`, each for the one file whose SHA-256 it states).
"""

import hashlib
from pathlib import Path

from perception.errors import InputError
from perception.files import read_yaml
from perception.labels import nearest

ZOO = Path(__file__).resolve().parent


def model_names() -> list[str]:
    """Names of the shipped models, sorted."""
    return sorted(path.stem for path in ZOO.glob("*.onnx"))


def model_path(model: str | Path) -> Path:
    """File of a shipped model's name, or the path itself.

    Raises InputError for a name that is not shipped (listing those that are) or a missing file.
    """
    path = Path(model)
    if path.is_file():
        return path
    name = str(model)
    if path.suffix == "" and len(path.parts) == 1:
        if name in model_names():
            return ZOO / f"{name}.onnx"
        names = model_names()
        raise InputError(
            f"model {name!r} is neither a file nor a shipped model{nearest(name, names)}; "
            f"shipped: {', '.join(names) or 'none'}"
        )
    if path.is_dir():
        raise InputError(f"{model}: is a folder, expected an .onnx file")
    raise InputError(f"{model}: no such model file")


def shipped_declaration(file: Path) -> Path | None:
    """The declaration that Waysight ships for exactly this file, whatever it is called now."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    for declaration in sorted(ZOO.glob("*.contract.yaml")):
        if read_yaml(declaration)["provenance"]["sha256"] == digest:
            return declaration
    return None
