"""Verdicts on the claims of the sources, and the evidence for each.

A claim is a statement of a source document that curvebench tests. A claim about training runs has conditions,
and each condition requires comparisons of two methods. `comparison.py` computes these comparisons seed by
seed, `findings.py` decides each of them, and `verdicts.py` combines their findings to the verdict on the
claim. Other claims are mathematical statements, which property checks evaluate on random instances;
`checked.py` has their verdicts.

Words that all modules of this package use:

- The two arms of a comparison are the treated method and the control. A pair consists of two runs with the
  same seed, one of each arm.
- The effect of a pair is the ratio (treated / control) or the difference (treated - control) of the values of
  its two runs. The gain of a pair is its effect (for a ratio, the logarithm of its effect) with the sign for
  which a gain above 0 means that the treated method is better.
- A run is censored if it stopped at a threshold, so that only a bound of its value is known. A pair is
  censored if one of its runs is censored.
- Tuning runs try settings (learning rates and other options). Final runs use the setting that tuning chose.
- A basis is an orthogonal change of coordinates of the parameters, in which an optimizer works.
- The finding of a comparison is supported, refuted or inconclusive. The verdict on a claim is, for example,
  reproduced or underpowered.
"""
