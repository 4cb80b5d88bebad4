"""Typed documents that planning, jobs and reports share: study, plan, job, claim, tuning protocol.

Each module defines one kind of document, which is read from YAML or JSON with strict types. A mistake in a
file raises an `InputError` that names the file and the key. This package imports no other package of the
project.

The words of this package:

- A *study* is a YAML file that compares methods on workloads. A study has a *scale* for each size in which
  the study can be run, such as `quick` and `paper`.
- A *workload* is a loss function with its data and initial parameters.
- A *basis* is a change of coordinates of the parameters, in which an optimizer makes its steps. A *method* is
  an optimizer in a basis.
- A *setting* is a value for each tuned hyperparameter. Tuning tries settings in one or several *rounds*; the
  *final* round runs the setting that tuning chose, on other seeds.
- A *cell* is a method on one workload in one round of a job.
- A *claim* is a sentence of a paper. It is decided either by *conditions*, which compare runs of methods, or
  by *property checks*, which test a property of an optimizer on random instances. Property checks may divide
  a claim into *subclaims*, each with a verdict of its own.
- The *arms* of a comparison are the treated method, about which the claim says something, and the control.
- A *job* is a process that Snakemake starts; a *job spec* is the file that says what the job computes.
- A *report* is a site with the results of several studies. A *published set* is a folder with the results of
  a report; the folder never changes again. A *submission* is a study that adds one method to a study of a
  published set.
"""
