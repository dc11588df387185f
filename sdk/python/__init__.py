"""An installation of Trainyard: `prefix` has bin, lib, include and share."""
import pathlib

prefix = pathlib.Path(__file__).parent
