"""The software bill of materials of what users install: the crates of others that are linked."""

import json
import tomllib
from urllib.parse import quote

from address import package
from notices import ROOT, linked_crates

# Its name beside a release's packages, and in a wheel.
BILL = "sbom.cdx.json"


def bill_of_materials() -> str:
    """What is linked into programs and module, as CycloneDX, with the checksums of Cargo.lock."""
    known = checksums()
    components = [
        {
            "type": "library",
            "name": crate["name"],
            "version": crate["version"],
            "purl": purl(crate),
            "hashes": [{"alg": "SHA-256", "content": known[crate["name"], crate["version"]]}],
            "licenses": [{"expression": crate["license"].replace("/", " OR ")}],
        }
        for crate in linked_crates()
    ]
    ours = {"type": "application", "name": "shade-load", "version": package(ROOT)["version"]}
    ours["licenses"] = [{"expression": "Apache-2.0"}]
    form = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    return json.dumps({**form, "metadata": {"component": ours}, "components": components}, indent=1)


def purl(crate: dict) -> str:
    """Its package URL, in which `+` is escaped."""
    return f"pkg:cargo/{crate['name']}@{quote(crate['version'])}"


def checksums() -> dict[tuple[str, str], str | None]:
    """Those of all locked crates, by name and version. Ours have none."""
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    return {(crate["name"], crate["version"]): crate.get("checksum") for crate in locked}
