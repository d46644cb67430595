"""Where the rules draw their lines, each with its reason. `docs/findings.md` is written from these numbers.

[P] is published, [F] a fact about torch or the formats, [H] a heuristic of ours, held against the calibration set.
"""

# Which steps are judged
MIN_NORMS = 50  # fewer finite norms bear no verdict [H]
NEWEST_JUDGED = 2_000  # what clipping does now is asked, not what it did once [H]
WARMUP_FRACTION = 0.1  # norms of the first steps are larger and say nothing of the later ones [H]
MAX_WARMUP_STEPS = 100
LEVEL_BLOCK = 50  # the local level of a series is the median of so many neighbours [H]
NO_SIGNAL_RATIO = 1e-3  # a norm this small beside its neighbours is a step without signal [H]
MAX_NO_SIGNAL_STREAK = 20  # as many in a row are no longer isolated [H]
MIN_NO_SIGNAL_STREAKS = 3  # in a handful of norms, fewer may be a level that has changed [H]

# Clipping. The playbook: about 10 % clipped is right, above 50 % is extremely aggressive [P]
INACTIVE_BELOW = 0.01
FIRM_ABOVE = 0.30
TOO_TIGHT_ABOVE = 0.50
SEVERE_ABOVE = 0.95  # and the median coefficient below SEVERE_COEF: normalised SGD [H]
SEVERE_COEF = 0.5
EARLY_STEPS = 300  # norms fall in the first hundreds of steps: what is clipped then is not told as a fault [H]…
EARLY_RATIO = 4.0  # …where they fall and the newest are no more than so many thresholds
EARLY_FALL = 0.95  # newer half ÷ older half of the norms: they still fall
EARLY_MILD_RATIO = 2.0  # …or, where they don't, no more than so many: few steps, and clipped by little
WARMED_UP_AT = 0.8  # or its learning rate came to its height in the newest fifth
STEADY_SPREAD = 0.1  # std ÷ mean of the coefficient: Adam does not see a constant one [F], nor nearly so [H]
EPSILON_COEF = 1e-3  # from here on Adam's own epsilon begins to count [F]
DETECTION_MAX_NORM = 0.1  # what detection transformers train with (± 1 %); it clips every step by design [P]
REGIME_CHANGE = 0.25  # clip fractions of the older and newer half differ by so much: the newer half is judged [H]
PER_LAYER_TIGHT_COEF = 0.5  # ‖after‖/‖before‖ of policies without one coefficient [H]
RECOMMENDED_PERCENTILES = (80.0, 90.0)  # clips 20 to 10 % of the steps [P]
MOVED_ON_RATIO = 2.0  # p80 of all judged norms ÷ of the newer half: the older ones no longer count [H]

# Spikes
SPIKE_RATIO = 10.0  # times the local median [H]
SPIKE_SIGMAS = 4.0  # and so many robust deviations of the log: a heavy tail is no spike [H]
HUGE_SPIKE_RATIO = 100.0
MANY_SPIKES = 2
SPIKE_ECHO_STEPS = 8  # the loss answers a spike within so many steps [P]
LOST_LOSS_FRACTION = 0.25  # so much higher for good, and six robust deviations: it has not come back [H]

# Norms
EXPLODING_RATIO = 10.0  # newest ÷ usual norm; no absolute number is valid [H]
EXPLODED_RATIO = 100.0
EXPLODED_STEPS = 20  # so many of the newest, all that far above the median before: not to be waited for any longer [H]
EXPLODING_FRACTION = 0.05  # the newest steps that are compared: this part of all, from 5 to 100 of them
COLLAPSE_RATIO = 1e3  # falls by so much and stays there [H]
COLLAPSE_STEPS = 20  # after a spike
LEARNT_ALL_RATIO = 0.01  # a loss that has fallen to this part with the norm: nothing is left to learn [H]
COLLAPSE_BETWEEN = 0.05  # at most so many norms between high and low, or it was no fall at once [H]
COLLAPSE_STEPS_WITHOUT_SPIKE = 100  # without one it may be a policy that has learnt all that it is rewarded for
DRIFT_RATIO = 3.0  # newest ÷ first quarter [H]
MIN_DRIFT_STEPS = 200
OUTGROWN_FROM = 0.10  # share clipped before, below INACTIVE_BELOW now [H]
PILE_FRACTION = 0.05  # share of norms that sit exactly on the threshold: they were taken after clipping [H]
PILE_WIDTH = 2e-4
MIN_PILE = 10
PILE_EDGE = 0.01  # where no threshold is known, fewer norms than in the pile lie so close below it [H]
STALE_FRACTION = 0.2  # share of norms equal to the one before to the last of 5 digits or more [H]
STALE_DIGITS = 5
SCALED_SLOPE = (0.6, 1.4)  # of log norm over log scale at the scale's changes; 1 is "still multiplied" [H]
SCALED_MIN_OCTAVES = 2.0  # the scale must have moved by so many halvings and doublings in all
SCALED_SUSPECT_RATIO = 100.0  # median norm ÷ max_norm (or ÷ 1): too large unless it is still scaled [H]

# Loss scale
WARMUP_SCALE = 1024.0  # the first burst of skips finds the scale, until it is below this
WARMUP_SKIPS_BELOW = 8  # and so many more have come [H]
QUIET_STEPS = 100  # applied steps without a skip end the first burst [H]
SKIPS_PER_INTERVAL = 2  # a scaler tries a higher scale once an interval; DeepSpeed's hysteresis makes it two [F]
SKIP_RATE = 0.025  # where the interval is unknown [H]
MIN_THRASHING_SKIPS = 5  # a rate wants a few skips to be one [H]
THRASHING_STREAK = 5  # [H]
COLLAPSED_STREAK = 10  # [H]
PURE_NAN_STREAK = 8  # NaN without any Inf, even at the start: an overflow makes Inf before it makes NaN [F]
COLLAPSED_SCALE = 1.0  # below it scaling makes gradients smaller: too many non-finite values [P]
COLLAPSING_RATIO = 16.0  # four halvings net, in 100 steps or quarter by quarter [H]
MODEL_NAN_LOSSES = 5  # non-finite losses in a row: the loss is taken before scaling, so it isn't the scale's [F]
INITIAL_SCALES = (2.0**15, 2.0**16, 2.0**32)  # Keras; torch, Apex and DeepSpeed; Megatron [F]
USUAL_GROWTH_INTERVAL = 2000  # torch's [F]
NEVER_GROWS_INTERVALS = 2  # clean growth intervals without growth [H]

# Non-finite
FIRST_ROWS = 25  # where nobody says what was used, so many may search for a loss scale: 2^32 takes 22 [H]
BURST_GAP = 2  # finite steps between that still count as one burst
BURST_STEPS = 3  # in BURST_WINDOW steps
BURST_WINDOW = 20
LONG_STREAK = 10
DEAD_STREAK = 5  # all newest steps non-finite, where nothing says that they were skipped [H]
APPLIED_STREAK = 2  # the same where the log says that they were applied [F]
RARE_FRACTION = 0.01  # as many non-finite norms are routine under fp16, where nobody says what was used [H]
SKIPPED_FRACTION = 0.10  # of updates (from BURST_STEPS on), without a loss scale [H]
MAX_BURSTS = 100  # listed; all are counted

# Layers
LAYER_ROWS = 50  # judged rows of layer norms that a verdict on layers wants [H]
DOMINANT_SHARE = 0.5  # of the squared norm [H]
MIN_DOMINANT_LAYERS = 4
VANISHING_RATIO = 1e-4  # layer ÷ 90th percentile of the layers, sustained [H]
EXPLODING_LAYER_RATIO = 1e3  # layer ÷ 75th percentile of the layers
SUSTAINED = 0.9  # of the judged rows
WARN_VANISHING_FRACTION = 0.1  # of the layers: a few are often a bias that a normalisation undoes [H]
SUDDEN_RATIO = 100.0  # newest 20 ÷ earlier norms of a layer, while the others stay [H]
SUDDEN_ROWS = 20
ADD_UP_TOLERANCE = 0.05  # total ÷ root of the sum of squares [H]

# Training and recording
HIGH_UPDATE_RATIO, LOW_UPDATE_RATIO = 1e-2, 1e-5  # update ÷ weight; about 1e-3 is usual [P]
UNDERFLOW_FRACTION = 0.5  # of scaled gradient elements that are zero [H]
LR_MOVES = 3  # decays while nothing is applied; from LR_MOVES_MANY on it costs training [H]
LR_MOVES_MANY = 10
LR_JUMP_RATIO = 10.0  # from one step to the next [H]
TURNED_EVALUATIONS = 3  # worse than the best, this often in a row, by TURNED_FRACTION [H]
TURNED_FRACTION = 0.02
TURNED_SIGMAS = 4.0  # and by so many robust deviations from one evaluation to the next [H]
TURNED_CLIPPING = 0.2  # change of the clip fraction over the same time [H]
RANK_TOLERANCE = 0.01  # spread ÷ largest of one step's norms [H]
RANK_STEPS = 3
GAP_RATIO = 20.0  # a step in the step numbers, in usual ones [H]
GAP_PERCENTILE = 90.0  # of the distances, is usual: a log may alternate kinds of lines, steps 49, 50, 99, 100 [H]
LOST_FRACTION = 0.10  # of the rows [H]
