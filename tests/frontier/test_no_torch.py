import subprocess
import sys


def test_the_room_never_imports_torch():
    code = "import sys, advfrontier.frontier; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603 (our own code)
