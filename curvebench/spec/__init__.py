"""Typed documents that planning, jobs and reports share: study, plan, job, claim, tuning protocol.

Each module defines one kind of document, which is read from YAML or JSON with strict types; a mistake is an
`InputError` that names the file and the key. This package imports no other package of the project.
"""
