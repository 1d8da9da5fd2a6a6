"""Operations on tensors: a PyTorch definition, and below it the Triton kernel that is faster where its allow-list permits."""
