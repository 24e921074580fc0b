#!/usr/bin/env python3
"""A complete backend in Python: a directory per volume below $BASE_DIR, handed out as hostPath.

Only the standard library is used. See docs/reference/exec.md for the protocol.
"""

import json
import os
import re
import shutil
import sys

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?")


class Failed(Exception):
    """It did not work and left nothing that a repetition would not find."""


class Volume:
    """The paths that belong to one volume."""

    def __init__(self, base, name):
        # The name becomes a path: take only what is certainly one visible entry of the base.
        if not NAME.fullmatch(name) or ".." in name:
            raise Failed(f"volume name {name!r} is not fit for a directory")
        self.directory = os.path.join(base, name)
        self.new = os.path.join(base, f".new-{name}")
        self.doomed = os.path.join(base, f".deleting-{name}")
        self.kept = os.path.join(base, f".kept-{name}")


def provision(volume, request):
    # Made under another name and moved into place: a kill in between leaves no half-made volume.
    # A directory that is there already is adopted, with whatever is in it.
    if not os.path.isdir(volume.directory):
        os.makedirs(volume.new, exist_ok=True)
        os.chmod(volume.new, 0o777)  # the mode given to makedirs is cut by the umask
        os.rename(volume.new, volume.directory)
    source = {"hostPath": {"path": volume.directory, "type": "Directory"}}
    # Capacity and access modes are left out: then they are the claim's.
    return {"outcome": "done", "volume": {"source": source}}


def delete(volume, request):
    # A volume that someone wrote by hand may point anywhere. Without a volume it is an orphan.
    if "volume" in request:
        path = request["volume"]["spec"].get("hostPath", {}).get("path")
        if path != volume.directory:
            raise Failed(f"the volume is at {path}, not at {volume.directory}; nothing was removed")
    # Moved away first, so that a kill in the middle leaves nothing that looks like a volume.
    remove(volume.doomed)
    if os.path.isdir(volume.directory):
        os.rename(volume.directory, volume.doomed)
    for path in (volume.doomed, volume.new):
        remove(path)
    if os.path.exists(volume.kept):
        os.remove(volume.kept)
    return {"outcome": "done"}


def remove(tree):
    if os.path.isdir(tree):
        shutil.rmtree(tree)


def keep(volume, request):
    with open(volume.kept, "w"):
        pass
    return {"outcome": "done"}


OPERATIONS = {"provision": provision, "delete": delete, "keep": keep}


def answer(request):
    operation = request["operation"]
    if operation == "capabilities":
        return {"outcome": "done", "operations": sorted(OPERATIONS)}
    if operation not in OPERATIONS:
        raise Failed(f"this program does not know the operation {operation}")
    volume = Volume(os.environ["BASE_DIR"], request["volumeName"])
    return OPERATIONS[operation](volume, request)


def main():
    try:
        result = answer(json.load(sys.stdin))
    except (Failed, OSError) as error:
        result = {"outcome": "failed", "message": str(error)}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
