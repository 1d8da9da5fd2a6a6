"""On-policy distillation: reverse KL as a policy gradient.

Agarwal et al., arXiv 2306.13649; Lu et al., "On-policy distillation", 2025. For a token that the student sampled,

    A_t = log teacher(token) − log student(token)

so that the student moves towards the teacher exactly where it goes itself. With the SFT checkpoint as teacher and general
prompts it undoes what RL on a narrow task forgot, without undoing what it learnt elsewhere.
"""

from __future__ import annotations

from ingot.post.algorithm import DistillAlgorithm, Samples, Stamped


class ReverseKl(DistillAlgorithm):
    """Each token's advantage is how much likelier the teacher finds it."""

    def advantages(self, samples: Samples) -> Stamped:
        rows, total, count = [], 0.0, 0
        for each, teacher in zip(samples.episodes, samples.frozen_logprobs(), strict=True):
            row = [t - s for t, s in zip(teacher, each.logprobs(), strict=True)]
            rows.append(row)
            total -= sum(a for a, sampled in zip(row, each.sampled(), strict=True) if sampled)
            count += each.sampled_count
        return rows, {"teacher_divergence": total / count}
