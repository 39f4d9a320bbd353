"""How stiff it was: functions of tensors and arrays, never of models, files or training."""

from stiffnet.stiffness.index import (
    index_from_norms as index_from_norms,
    stiffness_index as stiffness_index,
)
from stiffnet.stiffness.metric import StiffnessMetric as StiffnessMetric
from stiffnet.stiffness.quantiles import QUANTILES as QUANTILES
from stiffnet.stiffness.relate import (
    ModelRanking as ModelRanking,
    rank_models as rank_models,
    relate as relate,
)
from stiffnet.stiffness.summary import StiffnessSummary as StiffnessSummary
from stiffnet.stiffness.total import (
    Estimate as Estimate,
    delta as delta,
    proportion as proportion,
    stage_tns as stage_tns,
    tns as tns,
)
