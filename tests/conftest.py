"""Fixtures shared by the tests: both precisions, compiled code, a training that is interrupted."""

import ctypes
import gc
import os
from pathlib import Path

import jax
import jax.random as jr
import pytest

import calor
from calor.training import levenberg

# What one worker, or an earlier run, has compiled the others need not.
COMPILED = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
jax.config.update("jax_compilation_cache_dir", str(COMPILED))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
os.environ["CALOR_COMPILED"] = str(COMPILED)  # of processes that tests begin


# Cases that take ten seconds and more and have a quicker sibling, or that others imply: they run
# with `-m slow`, so that the default run stays well below a quarter of an hour on two cores.
SLOW = (
    "test_weighed.py::test_draws_and_data_of_the_same_law_look_alike",
    "test_metrics.py::test_trees_tell_two_gaussians_apart_as_well_as_can_be",
    "test_laws.py::test_what_is_left_of_the_equation_is_what_the_closed_form_leaves[-1]",
    "test_laws.py::test_the_certificate_of_the_law_tells_its_error",
    "test_laws.py::test_what_is_left_of_the_equation_where_the_curvature_varies",
    "test_docs.py::test_page_runs_as_printed[fitting.md]",
    "test_docs.py::test_page_runs_as_printed[extending.md]",
    "test_density.py::test_a_density_lives_around_a_centre[False]",
    "test_densities.py::test_conditions_are_used",
    "test_densities.py::test_bandwidths_adapt_as_those_of_calor_did",
    "test_few.py::test_flows_and_stops",
    "test_one_file.py::test_the_exact_kernel_is_the_heat_kernel",
    "test_densities.py::test_mixtures_of_logarithms_have_a_volume",
    "test_densities.py::test_kernels_of_rivals_are_heat_kernels_at_small_times[matrices]",
    "test_densities.py::test_kernel_densities_integrate_to_one[one_bandwidth]",
    "test_laws.py::test_auto_takes_the_best_at_every_time[of_series1-of_network1-network]",
    "test_one_file.py::test_fit_sample_score_save_and_plot_in_python",
    "test_pairs.py::test_straight_lines_tell_the_distance",
    "test_weighed.py::test_the_same_plan_does_the_same_again",
    "test_density.py::test_a_stack_of_models_with_and_without_conditions",
    "test_docs.py::test_page_runs_as_printed[choosing.md]",
    "test_density.py::test_numbers_move_a_density[False]",
    "test_density.py::test_every_label_has_a_density_of_its_own[False]",
    "test_density.py::test_a_density_survives_a_file[False]",
    "test_interoperation.py::test_cross_validation_and_grid_search",
    "test_docs.py::test_page_runs_as_printed[kernels.md]",
    "test_docs.py::test_page_runs_as_printed[calculus.md]",
    "test_docs.py::test_page_runs_as_printed[solving.md]",
    "test_one_file.py::test_the_laplacian_is_that_of_geodesics",
    "test_files.py::test_old_models_say_the_same[diffusion-spd-plain]",
    "test_files.py::test_old_kernels_say_the_same[pairs-submanifold]",
    "test_calculus.py::test_projector_formula[bumpy two equations-projector]",
    "test_kernels.py::test_score_is_the_gradient[SPD(2)]",
    "test_kernels.py::test_solves_the_heat_equation[Hyperbolic(2)]",
    "test_kernels.py::test_chapman_kolmogorov[Hyperbolic(2)]",
    "test_kernels.py::test_chapman_kolmogorov[SPD(2)]",
    "test_manifolds.py::test_exp_and_log_invert_each_other[ellipsoid-float64]",
    "test_manifolds.py::test_gradient_and_laplacian_against_differences[SPD(4)]",
    "test_manifolds.py::test_gradient_and_laplacian_against_differences[SPD(1)]",
    "test_manifolds.py::test_gradient_and_laplacian_against_differences[Sphere(5)]",
    "test_manifolds.py::test_gradient_and_laplacian_against_differences[Hyperbolic(4)]",
    "test_guesses.py::test_a_guess_is_as_wide_as_groups_differ[labels]",
    "test_accuracy.py::test_spheres[4]",
    "test_accuracy.py::test_spheres[24]",
    "test_accuracy.py::test_spheres_modulo_sign[projective plane]",
    "test_cli.py::test_bench_measures_every_exact_kernel",
    "test_cloud_models.py::test_absent_points_are_not_seen",
    "test_cloud_models.py::test_fit_sample_save[fit-labelled]",
    "test_cloud_models.py::test_fit_sample_save[fit_flow-exact]",
    "test_cloud_models.py::test_fit_sample_save[fit_flow-labelled]",
    "test_cloud_models.py::test_the_score_turns_and_is_relabeled_with_the_cloud[0]",
    "test_clouds.py::test_absent_points_change_nothing[bethe]",
    "test_clouds.py::test_absent_points_change_nothing[learned]",
    "test_clouds.py::test_absent_points_change_nothing[sinkhorn]",
    "test_clouds.py::test_clouds_of_different_numbers_are_apart",
    "test_clouds.py::test_exact_kernel_solves_the_heat_equation[0]",
    "test_clouds.py::test_exact_permanents_are_sums_over_permutations[3]",
    "test_clouds.py::test_recipes[own]",
    "test_clouds.py::test_recipes[paper]",
    "test_clouds.py::test_sinkhorn_bounds_from_above_and_bethe_from_below[3]",
    "test_clouds.py::test_symmetries_of_the_kernel[bethe]",
    "test_clouds.py::test_symmetries_of_the_kernel[sinkhorn]",
    "test_clouds.py::test_unit_mass_and_chapman_kolmogorov[0]",
    "test_diffusion.py::test_kernel_densities_integrate_to_one_and_draw_what_they_say[True]",
    "test_docs.py::test_page_runs_as_printed[clouds.md]",
    "test_docs.py::test_page_runs_as_printed[diffusion.md]",
    "test_docs.py::test_page_runs_as_printed[manifolds.md]",
    "test_docs.py::test_page_runs_as_printed[matrices.md]",
    "test_docs.py::test_page_runs_as_printed[own_manifold.md]",
    "test_docs.py::test_page_runs_as_printed[tutorial.md]",
    "test_fit.py::test_frechet_mean_is_the_point_of_no_pull",
    "test_fit.py::test_frechet_mean_of_points_far_out_in_negative_curvature",
    "test_fit.py::test_training_is_judged_by_the_likelihood_of_held_out_points",
    "test_interoperation.py::test_a_diffusion_model_as_an_estimator",
    "test_kernels.py::test_score_is_the_gradient[SO3 x R^3]",
    "test_kernels.py::test_score_is_the_gradient[projective plane]",
    "test_kernels.py::test_solves_the_heat_equation[SO3]",
    "test_kernels.py::test_solves_the_heat_equation[SPD(2)]",
    "test_kernels.py::test_solves_the_heat_equation[Sphere(1)]",
    "test_kernels.py::test_solves_the_heat_equation[Sphere(5)]",
    "test_manifolds.py::test_everything_is_finite_at_coinciding_points[Hyperbolic(2)]",
    "test_manifolds.py::test_everything_is_finite_at_coinciding_points[Hyperbolic(4)]",
    "test_manifolds.py::test_everything_is_finite_at_coinciding_points[Klein bottle]",
    "test_manifolds.py::test_everything_is_finite_at_coinciding_points[SO3 x R^3]",
    "test_manifolds.py::test_everything_is_finite_at_coinciding_points[SO3]",
    "test_manifolds.py::test_everything_is_finite_at_coinciding_points[SPD(1)]",
    "test_manifolds.py::test_everything_is_finite_at_coinciding_points[SPD(2)]",
    "test_manifolds.py::test_everything_is_finite_at_coinciding_points[SPD(4)]",
    "test_manifolds.py::test_everything_is_finite_at_coinciding_points[Sphere(1)]",
    "test_manifolds.py::test_everything_is_finite_at_coinciding_points[ellipsoid]",
    "test_own_manifold.py::test_law_along_geodesics_is_the_kernel_of_the_sphere_for_small_times",
    "test_own_manifold.py::test_points_to_look_around_and_components",
    "test_own_manifold.py::test_scalar_curvature",
    "test_own_manifold.py::test_spectral_kernel_of_the_sphere",
    "test_pairs.py::test_early_it_is_the_gaussian_of_the_chord_and_late_the_uniform_law",
    "test_pairs.py::test_geodesics_are_shortest_up_to_half_of_a_closed_one[manifold1]",
    "test_pairs.py::test_log_prob_is_symmetric_by_construction[0.2]",
    "test_pairs.py::test_points_are_where_the_equation_does_not_hold",
    "test_pairs.py::test_rows_of_the_recipe_are_the_equation_and_the_law[False]",
    "test_pairs.py::test_rows_of_the_recipe_are_the_equation_and_the_law[True]",
    "test_pairs.py::test_the_rate_is_that_of_the_slowest_coordinate",
    "test_shorttime.py::test_first_order_on_spd_solves_the_equation_to_first_order[3]",
    "test_shorttime.py::test_first_order_on_spd_solves_the_equation_to_first_order[6]",
    "test_shorttime.py::test_walk_of_the_short_time_laws_on_spd",
    "test_singular_points.py::test_far_out_in_hyperbolic_space",
    "test_singular_points.py::test_fast_eigenvalues_of_ordinary_and_degenerate_matrices",
    "test_singular_points.py::test_ill_conditioned_matrices",
    "test_singular_points.py::test_second_derivative_of_matrix_log_at_repeated_eigenvalues_is_right",
    "test_solve.py::test_draws_on_spd10_have_the_moments_of_brownian_motion[0.3]",
    "test_solve.py::test_draws_on_the_sphere_have_the_moments_of_brownian_motion[mcmc]",
    "test_solve.py::test_points_are_placed_where_their_coordinates_say[sphere:3]",
    "test_solve.py::test_shipped_kernels_are_a_hundred_times_better_than_the_paper[so3]",
    "test_solve.py::test_shipped_kernels_solve_the_equation[spd:3]",
    "test_solve.py::test_the_equation_in_kernel_coordinates_is_the_one_of_the_manifold[spd:3]",
    "test_solve.py::test_the_equation_in_kernel_coordinates_is_the_one_of_the_manifold[sphere:3]",
    "test_solve.py::test_the_shipped_kernel_of_spd2_is_the_exact_one",
    "test_solve.py::test_the_walk_of_the_paper_reports_its_acceptance",
    "test_guesses.py::test_held_out_rows_are_told_what_all_others_predict[False]",
    "test_denoisers.py::test_spd_net_has_the_sizes_of_the_paper_and_names_matrices",
    "test_spd_use.py::test_wide_data_ask_for_more_centres_where_the_kernel_ends_early",
    "test_submanifold.py::test_clifford_torus_is_flat",
    "test_submanifold.py::test_distance_has_two_derivatives[0]",
    "test_submanifold.py::test_exp_can_be_differentiated_backwards",
    "test_submanifold.py::test_exp_is_inverse_to_log[half plane]",
    "test_submanifold.py::test_exp_is_inverse_to_log[torus]",
    "test_submanifold.py::test_half_plane_distances",
    "test_submanifold.py::test_log_volume_inside_jit_is_the_same_number",
    "test_submanifold.py::test_shooting_errors",
    "test_submanifold.py::test_sphere_geodesics_float64",
    "test_submanifold.py::test_uniform_points_on_the_torus",
    "test_submanifold.py::test_volume[sphere-12.566370614359172]",
    "test_submanifold.py::test_volume[torus-78.95683520871486]",
    "test_tables.py::test_other_manifolds_and_back",
)


def pytest_configure(config):
    """Tests compile much and compute little: code that is less optimized is ready sooner."""
    flags = []
    if (0, 10) <= jax.__version_info__ < (0, 11):  # where it is known; it halves the time
        flags.append("--xla_cpu_use_fusion_emitters=false")
    if config.option.markexpr == "not slow":
        flags.append("--xla_backend_optimization_level=0")
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the slow cases, all of which are there where files are collected whole."""
    names = {item.nodeid.rpartition("/")[2]: item for item in items}
    for case in names.keys() & set(SLOW):
        names[case].add_marker(pytest.mark.slow)
    if not any("::" in argument for argument in config.args):
        files = {item.path.name for item in items}
        known = [case for case in SLOW if case.partition("::")[0] in files]
        gone = [case for case in known if case not in names]
        if gone:
            raise pytest.UsageError(f"conftest.SLOW names no test: {', '.join(gone)}")


# A worker lets go of compiled code when it has grown to so many bytes.
MOST = 1.6e9


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Let go of compiled code, which would otherwise grow to several gigabytes."""
    statm = Path("/proc/self/statm")
    if statm.exists() and int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > MOST:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # glibc keeps what is freed in between


@pytest.fixture(params=["float32", "float64"])
def precision(request):
    """Run a test in single and in double precision; the value is the name of the dtype."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.fixture
def double():
    """Run a test in double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def solved_sphere():
    """The series of the sphere from its equation, with few functions."""
    sphere = calor.Submanifold(lambda x: x @ x - 1, 3)
    return calor.solve_spectral(sphere, key=jr.key(0), functions=150)


@pytest.fixture
def interrupt_training(monkeypatch):
    """Call it with k: the k-th step of all trainings is interrupted. It returns the steps made."""

    def arm(number):
        advance, calls = levenberg._advance, []

        def interrupted(stages, rows, state):
            calls.append(1)
            if len(calls) == number:
                raise KeyboardInterrupt
            return advance(stages, rows, state)

        monkeypatch.setattr(levenberg, "_advance", interrupted)
        return calls

    return arm
