"""A Chromium without a window, which draws a page or tells what is on it."""
import shutil
import subprocess

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def visit(page, profile, *words):
    """What it prints; `profile` is a folder of its own, to write in."""
    return subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync",
                           "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}", *words, page],
                          check=True, capture_output=True, text=True, timeout=120).stdout
