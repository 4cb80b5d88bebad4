"""The one command of the project, `curvebench`: the top floor, which may import all others."""
