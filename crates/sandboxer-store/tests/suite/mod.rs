//! What every store must do, whatever is behind it. A test binary per store names its [`Place`] in `suite!`.

pub(crate) mod books;
pub(crate) mod budgets;
pub(crate) mod events;
pub(crate) mod fixture;
pub(crate) mod holds;
pub(crate) mod hosts;
pub(crate) mod ledger_model;
pub(crate) mod listing;
pub(crate) mod memory;
pub(crate) mod metering;
pub(crate) mod model;
pub(crate) mod outbox;
pub(crate) mod outgoing;
pub(crate) mod pruning;
pub(crate) mod requests;
pub(crate) mod sandboxes;
pub(crate) mod snapshots;
pub(crate) mod transfers;

use std::sync::Arc;

use async_trait::async_trait;
use sandboxer_store::Store;

/// Where a store is; empty at first. Every `open` is another user of the same data, as another process would be.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// Opens it with the source and the sinks of [`fixture`].
    async fn open(&self) -> Arc<dyn Store>;
}

/// Makes one test per function, each on a place of its own: `suite!(new_place; sandboxes::a_test, …)`.
#[macro_export]
macro_rules! suite {
    ($place:expr; $($module:ident { $($test:ident),* $(,)? })*) => {
        $(mod $module {
            $(#[tokio::test]
            async fn $test() {
                $crate::suite::$module::$test(&$place).await;
            })*
        })*
    };
}

/// Every function of the suite.
#[macro_export]
macro_rules! whole_suite {
    ($place:expr) => {
        $crate::suite! { $place;
            sandboxes {
                a_new_sandbox_is_read_back_whole,
                an_unknown_sandbox_is_absent,
                an_update_is_read_back_whole,
                a_read_is_never_older_than_the_last_write,
                a_stale_version_is_a_temporary_conflict,
                an_update_of_nothing_is_not_found,
                a_first_step_other_than_requested_is_refused,
                an_edge_that_does_not_exist_is_refused,
                a_record_that_differs_from_its_steps_is_a_defect,
                a_refused_update_leaves_nothing_behind,
                the_same_id_twice_is_a_conflict,
                a_shared_sandbox_is_found_again,
                a_sandbox_that_ends_is_not_reused,
                fifty_creates_at_once_make_one_sandbox,
                of_many_updates_at_once_one_wins,
                sharing_lists_the_living_newest_first,
                living_lists_oldest_first_without_the_destroyed,
                overdue_lists_what_can_expire,
                a_lease_is_taken_kept_renewed_and_released,
                a_caller_that_goes_away_leaves_nothing_half,
            }
            listing {
                pages_are_newest_first_and_end,
                pages_stay_stable_while_sandboxes_come,
                filters_hold_alone_and_together,
                labels_follow_an_update,
                a_foreign_cursor_is_refused,
            }
            events {
                sequences_have_no_gaps,
                sequences_have_no_gaps_with_many_writers,
                events_are_read_by_position_subject_and_owner,
                an_event_is_found_by_its_id,
            }
            outbox {
                deliveries_are_in_order_per_sandbox,
                sinks_are_apart,
                two_claimers_never_get_the_same,
                a_retry_waits_and_keeps_the_order,
                a_dead_claimers_deliveries_pass_on,
                stats_tell_what_is_pending,
                done_twice_is_fine,
            }
            requests {
                a_create_is_replayed,
                another_body_is_a_mismatch,
                a_reused_sandbox_is_linked_to_the_key,
                creates_with_one_key_at_once_make_one_sandbox,
                other_requests_keep_their_answer,
                a_request_without_effect_may_be_sent_again,
                an_abandoned_request_may_be_sent_again,
                one_of_many_requests_at_once_goes_on,
                keys_are_listed_found_and_revoked,
                a_key_twice_is_a_conflict,
            }
            snapshots {
                a_snapshot_is_planned_taken_and_removed_with_its_events,
                a_doomed_one_is_unsettled_until_it_goes,
                somebody_elses_change_is_a_conflict,
                pages_are_newest_first_and_filtered,
                a_sandbox_with_snapshots_is_not_forgotten,
                facts_leave_the_version_alone,
            }
            hosts {
                a_host_is_read_back_whole,
                a_name_is_taken_once,
                a_host_in_use_is_not_removed,
                no_sandbox_is_written_for_an_unknown_host,
                health_follows_the_signs,
                many_signs_at_once_are_all_counted,
                loads_count_what_lives,
            }
            memory {
                latencies_are_learned_by_profile,
                many_samples_at_once_are_all_counted,
                failures_are_kept_until_a_success,
                one_at_a_time_may_try,
                limits_hold_for_all_together,
            }
            outgoing {
                events_are_queued_for_the_webhooks_that_want_them,
                only_endpoints_with_something_due_are_due,
                endpoints_are_changed_by_one_at_a_time,
                a_disabled_endpoint_keeps_its_queue_as_dead_letters,
                what_is_given_up_lets_the_next_go,
                dead_letters_come_in_pages,
                a_replay_goes_behind_what_is_pending,
                an_event_is_sent_again_to_whoever_wants_it,
                everything_since_a_moment_is_sent_again,
                many_events_are_sent_again_in_order,
                claims_of_the_dead_are_given_back,
                a_dead_letter_keeps_its_sandbox,
            }
            holds {
                a_hold_is_taken_changed_and_settled,
                nothing_is_written_without_credits,
                a_hold_of_nothing_needs_no_account,
                the_most_specific_opened_account_pays_to_the_end,
                a_settlement_happens_once,
                a_charge_above_the_hold_is_a_defect,
                a_change_that_lost_the_race_moves_nothing,
                a_reused_sandbox_holds_nothing_more,
                creates_at_once_never_pass_the_balance_together,
                amounts_beyond_all_bounds_are_refused,
                a_sandbox_is_remembered_until_it_is_settled,
                what_ended_without_a_charge_is_found,
            }
            transfers {
                a_transfer_is_made_once,
                many_at_once_are_each_made_once,
                one_that_is_refused_spoils_no_other,
                callers_that_go_away_leave_the_others_alone,
                what_cannot_be_moved_is_refused,
                an_overdraft_can_be_lowered,
                entries_are_filtered,
                the_books_never_go_back,
                entries_of_a_key_outlive_its_sandboxes,
                own_keys_are_put_found_and_removed,
            }
            budgets {
                a_day_ends_at_midnight_in_utc,
                a_month_counts_all_its_days,
                everybody_concerned_is_asked,
                organisations_do_not_share_a_budget,
                a_budget_set_later_counts_what_was_before,
                what_was_not_used_goes_back_to_the_latest_day,
                creates_at_once_never_pass_a_budget_together,
                budgets_that_cannot_be_are_refused,
            }
            metering {
                an_interval_is_opened_and_ended_once,
                two_intervals_of_a_meter_never_run_at_once,
                two_that_meter_the_same_sandbox_charge_once,
                a_sign_of_life_never_goes_back,
                pages_are_newest_first_and_filtered,
                pages_of_one_sandbox_have_every_interval,
                a_foreign_cursor_is_refused,
            }
            pruning {
                old_destroyed_sandboxes_go_with_everything,
                what_lives_or_is_undelivered_stays,
                many_are_pruned_while_others_write,
                positions_are_never_given_twice,
                old_request_keys_go,
            }
        }
    };
}
