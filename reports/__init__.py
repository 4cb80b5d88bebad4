"""From tables to pages: statistics, verdicts, figures, leaderboard and the static site.

A report reads a plan (`plan.json`) and the tables that jobs wrote. It imports nothing that executes runs.
`measures.py` computes values per run; `statistics`, `claims`, `boards` and `figures` use these values;
`pages` fills the templates; `sets` publishes the tables.

Words that all modules use:

- A method is an optimizer with its options, in a basis.
- A basis is an orthogonal change of coordinates of the parameters.
- A problem is a workload of a study on one backend. A problem instance is a problem with one seed.
- A group of runs, also called a cell, has one workload, method and backend. Its runs differ in seed and
  setting. The columns `CELL` identify it in tables.
- Tuning runs try settings (learning rates and other options). Final runs use the setting that tuning chose.
- The headline metric is the metric by which a study compares methods.
- A target is a threshold of a metric that runs should reach. A stop is a threshold at which runs end. A floor
  is a value of a metric beyond which differences are rounding errors.
- A study joins another study if it adds methods, such as a user's submission, to the methods of that study.
- A set is a folder of published tables.
"""
