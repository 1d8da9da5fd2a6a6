"""On-policy distillation: reverse KL as a policy gradient.

Agarwal et al., arXiv 2306.13649; Lu et al., "On-policy distillation", 2025. For a token that the student sampled,

    A_t = log teacher(token) − log student(token)

so that the student moves towards the teacher exactly where it goes itself. A teacher with another tokenizer grades runs of tokens
that spell the same bytes on both sides (tokens/alignment.py). Such a group g is one action, with log student(g) the sum over its
tokens, so each of them gets the whole

    A_g = log teacher(g) − log student(g)

and ∇ log student(g) · A_g is again the gradient of a KL; an equal part for each would make it smaller by their number.

With the SFT checkpoint as teacher and general prompts it undoes what RL on a narrow task forgot, without undoing what it learnt
elsewhere.
"""

from __future__ import annotations

from ingot.post.algorithm import DistillAlgorithm, Samples, Stamped


class ReverseKl(DistillAlgorithm):
    """Each token's advantage is how much likelier the teacher finds it, or the bytes that it is a part of."""

    def advantages(self, samples: Samples) -> Stamped:
        rows, total, count = [], 0.0, 0
        for each, graded in zip(samples.episodes, samples.graded(), strict=True):
            row, student = [0.0] * each.length, each.logprobs()
            for start, stop, teacher in graded:
                advantage = teacher - sum(student[start:stop])
                row[start:stop] = [advantage] * (stop - start)
                total -= advantage
                count += stop - start
            rows.append(row)
        sampled = sum(each.sampled_count for each in samples.episodes)
        return rows, {"teacher_divergence": total / max(1, count), "graded_share": count / sampled}
