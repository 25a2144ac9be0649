"""`ci/vendor-drift`: what an upstream's profiles name and we do not, and the reverse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "bench" / "vendor" / "drift.py"


def drift(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_both_directions_are_told(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "base.sbpl").write_text(
        '(version 1)\n(deny default)\n; (allow mach-lookup (global-name "com.apple.commented"))\n'
        '(allow mach-lookup (global-name "com.apple.new") (global-name "com.apple.networkd"))\n'
        '(allow sysctl-read (sysctl-name "hw.new") (sysctl-name-prefix "hw.perflevel"))\n'
        "(allow process-fork system-swap)\n"
    )
    code, out, _ = drift(str(tmp_path))
    lines = out.splitlines()
    assert code == 1
    assert "only upstream: service com.apple.new" in lines
    assert "only upstream: sysctl hw.new" in lines
    assert "only upstream: operation system-swap" in lines
    assert "only here: service com.apple.ocspd" in lines
    assert "only here: operation pseudo-tty" in lines
    assert not any(
        "networkd" in line or line.endswith("hw.perflevel") or "commented" in line for line in lines
    )


def test_our_own_profile_does_not_drift_from_our_data(tmp_path: Path) -> None:
    golden = ROOT / "tests" / "confine" / "goldens" / "default.sb"
    (tmp_path / "ours.sb").write_text(golden.read_text())
    code, out, _ = drift(str(tmp_path))
    assert (code, out) == (0, "")


def test_nothing_to_compare_with_is_said(tmp_path: Path) -> None:
    assert drift(str(tmp_path))[0] == 2
    assert drift(str(tmp_path / "nowhere"))[0] == 2
    assert drift()[0] == 2
