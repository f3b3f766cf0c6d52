"""Linear attention as recursive least squares: rules, fast operations, traces and figures.

The paper is Pandey and Singh, "Variational Linear Attention", arXiv 2605.11196. Its letters appear
beside formulas only; everywhere else the field's words are used:

===========  =======================  ==========================================  ============
symbol       name in code             what it is                                  paper
===========  =======================  ==========================================  ============
``S``        ``S``, memory            ``[d_v, d]`` state; ``S q`` is the read     eq. 10
``M``        ``M``, penalty           ``λ0 I + Σ u uᵀ``                           eq. 8, §3.2
``A``        ``A``, inverse penalty   ``M⁻¹``, kept by Sherman–Morrison           eq. 9, §3.3
``λ0``       ``lambda0``              initial penalty, ``A_0 = I/λ0``             §3.2
``u``        ``u``, direction         direction whose penalty grows               §3.2
``k, v, q``  ``k``, ``v``, ``q``      key, value, query of one token              §2
``β``        ``beta``, gate           weight of the write (real DeltaNet)         not there
``z``        ``z``                    ``A_{t-1} u_t``; also the read normaliser   eq. 9, §2.2
``δ``        ``delta``                ``1 + u·z``                                 eq. 9
``α, α̂``     ``gain``                 direction of the write                      eq. 10, §1.2
``e``        ``error``, residual      ``v − S_{t-1} k``                           eq. 10
``J``        ``transition``           ``∂S_t/∂S_{t-1}``, acts on the right        §4.2
``ρ``        ``correlation``          cosine between keys                         §7.2
===========  =======================  ==========================================  ============
"""

__version__ = "0.1.0"
