-- The comparison of a book with what a walk has seen. Run by `_diff.py`, part by part; a part begins at `-- @name`.
-- Variables: "begin", "end", settled, oldest (moments), walked, changed_rows (files), steps, step (whole numbers),
-- is_looked_up (whether the look-ups have been made).

-- @setup

CREATE MACRO is_paid(paid, state) AS paid > 0 OR coalesce(state IN ('paid', 'refunded'), false);

-- An order that is open says no more than that nobody has paid it. Of one that was refunded in part, platforms say
-- that it is paid, or that it is refunded; one that was canceled after its payment is refunded.
CREATE MACRO same_state(ours, theirs, paid, refunded) AS
    ours IS NULL OR theirs IS NULL OR ours = theirs
    OR (ours = 'open' AND theirs = 'created')
    OR (theirs = 'open' AND ours IN ('created', 'expired', 'canceled'))
    OR (ours = 'canceled' AND theirs = 'refunded')
    OR (ours IN ('paid', 'refunded') AND theirs IN ('paid', 'refunded') AND 0 < refunded AND refunded < paid);

CREATE MACRO judged(
    b_currency, b_paid, b_refunded, b_total, b_status, t_currency, t_paid, t_refunded, t_total, t_state
) AS CASE
    WHEN b_currency <> t_currency THEN 'currency'
    WHEN b_paid <> t_paid THEN 'paid_amount'
    WHEN b_refunded <> t_refunded THEN 'refunded_amount'
    WHEN b_total <> t_total THEN 'total_amount'
    WHEN b_status IS NOT NULL AND NOT same_state(state_of(b_status), t_state, t_paid, t_refunded) THEN 'status'
    ELSE 'match'
END;

CREATE MACRO in_question(created) AS
    created IS NULL OR (created >= getvariable('begin') AND created < getvariable('end'));
CREATE MACRO is_young(created) AS created IS NULL OR created >= getvariable('oldest');

-- A row without a date comes once for each window that showed it, and one that has changed since is among the changes.
CREATE VIEW changed AS
    SELECT * FROM changed_rows WHERE in_question(created) OR created < '0001-01-03 00:00:00+00'
    QUALIFY row_number() OVER (PARTITION BY account, id ORDER BY read_at DESC, updated DESC) = 1;
CREATE VIEW seen AS
    SELECT * FROM walked ANTI JOIN changed_rows USING (account, id)
        WHERE created >= '0001-01-03 00:00:00+00'
    UNION ALL
    SELECT * FROM walked ANTI JOIN changed_rows USING (account, id)
        WHERE created IS NULL OR created < '0001-01-03 00:00:00+00'
        QUALIFY row_number() OVER (PARTITION BY account, id ORDER BY read_at DESC, updated DESC) = 1
    UNION ALL
    SELECT * FROM changed;
CREATE VIEW theirs AS
    SELECT
        account, id, nullif(reference, '') AS reference, currency, total, coalesce(paid, 0) AS paid,
        coalesce(refunded, 0) AS refunded, order_status, status, created, read_at
    FROM seen;
-- Of a million orders few are asked for it.
CREATE MACRO state_in(order_status, status) AS coalesce(state_of(order_status), state_of(status));

-- What is looked up: orders of a reference, or the order of an id; without an `id` there was none.
CREATE TABLE looked_up (
    n BIGINT, account VARCHAR, reference VARCHAR, by_id BOOLEAN, is_doubtful BOOLEAN, id VARCHAR, currency VARCHAR,
    total DECIMAL(38, 18), paid DECIMAL(38, 18), refunded DECIMAL(38, 18), state VARCHAR, created TIMESTAMPTZ,
    read_at TIMESTAMPTZ
);
CREATE TABLE open_writes (account VARCHAR, reference VARCHAR, order_id VARCHAR);
CREATE TABLE doubtful (account VARCHAR, first TIMESTAMPTZ, last TIMESTAMPTZ);

CREATE TABLE found (
    outcome VARCHAR, n BIGINT, account VARCHAR, reference VARCHAR, ids VARCHAR, currency VARCHAR,
    total DECIMAL(38, 18), paid DECIMAL(38, 18), refunded DECIMAL(38, 18), state VARCHAR, created TIMESTAMPTZ,
    read_at TIMESTAMPTZ
);

-- @pairs
-- What agrees is told by hashes, and not looked at again: where as many orders of the platform as of the book have the
-- reference, and the same in all columns that are compared, the sum is 0. All others are candidates, and some that agree;
-- so are orders of the book that were made at another time: which of the platform's they are, only a look-up tells.
CREATE TABLE candidates AS
    SELECT h FROM (
        SELECT
            hash(account, reference) AS h, fingerprint(currency, total, paid, refunded, state_of(status)) AS f,
            in_question(created) AS is_here
        FROM book
        UNION ALL
        SELECT
            hash(account, reference),
            -fingerprint(currency, total, paid, refunded, state_in(order_status, status)),
            true
        FROM theirs
    ) GROUP BY h HAVING sum(f) <> 0 OR NOT bool_and(is_here);
CREATE TABLE our_candidates AS SELECT *, hash(account, reference) AS h FROM book WHERE h IN (FROM candidates);
CREATE TABLE their_candidates AS
    SELECT * EXCLUDE (order_status, status), state_in(order_status, status) AS state, hash(account, reference) AS h
    FROM theirs WHERE h IN (FROM candidates);

-- References that either side has more than once (and some others, by their hash). An order without a reference is in
-- nobody's book.
CREATE TABLE repeated AS
    SELECT h FROM our_candidates GROUP BY h HAVING count(*) > 1
    UNION
    SELECT h FROM their_candidates WHERE reference IS NOT NULL GROUP BY h HAVING count(*) > 1;

-- All others are compared in one join. What agrees is not kept: it is counted by what is left.
INSERT INTO found
    SELECT
        CASE
            WHEN b.n IS NULL THEN if(t.created >= getvariable('settled'), 'too_recent', 'extra')
            WHEN t.id IS NULL OR NOT in_question(b.created) THEN 'absent'
            ELSE judged(
                b.currency, b.paid, b.refunded, b.total, b.status, t.currency, t.paid, t.refunded, t.total, t.state
            )
        END AS outcome,
        b.n, coalesce(t.account, b.account), coalesce(t.reference, b.reference), t.id, t.currency, t.total, t.paid,
        t.refunded, t.state, t.created, t.read_at
    FROM (FROM our_candidates ANTI JOIN repeated USING (h)) AS b
        FULL JOIN (FROM their_candidates ANTI JOIN repeated USING (h)) AS t
        ON b.account = t.account AND b.reference = t.reference
    WHERE outcome <> 'match' AND (t.id IS NOT NULL OR in_question(b.created));

CREATE TABLE ours_left AS FROM our_candidates WHERE h IN (FROM repeated);
CREATE TABLE theirs_left AS FROM their_candidates WHERE h IN (FROM repeated);
DROP TABLE their_candidates;

-- @agreeing
-- Of references for which the platform has no more orders than the book, of this time or of all that the search shows,
-- those of one time that agree: ranked with the others, one that differs would shift all after it. Done in so many
-- `steps`, by hash.
CREATE TABLE agreed AS
    WITH
        ours AS (
            SELECT *, fingerprint(currency, total, paid, refunded, state_of(status)) AS f, in_question(created) AS is_here,
                row_number() OVER (
                    PARTITION BY account, reference, is_here, f ORDER BY is_young(created) DESC, n
                ) AS place,
                count(*) OVER (PARTITION BY account, reference, is_here) AS times,
                count_if(is_here) OVER (PARTITION BY account, reference) AS here,
                count_if(is_here OR is_young(created)) OVER (PARTITION BY account, reference) AS in_reach
            FROM ours_left WHERE h % getvariable('steps') = getvariable('step')
        ),
        ranked AS (
            SELECT *, fingerprint(currency, total, paid, refunded, state) AS f, in_question(created) AS is_here,
                row_number() OVER (PARTITION BY account, reference, is_here, f ORDER BY id) AS place,
                count(*) OVER (PARTITION BY account, reference, is_here) AS times,
                count_if(is_here) OVER (PARTITION BY account, reference) AS shown_here,
                count(*) OVER (PARTITION BY account, reference) AS shown
            FROM theirs_left WHERE h % getvariable('steps') = getvariable('step')
        )
    SELECT b.n, b.account, t.id
    FROM ours AS b JOIN ranked AS t
        ON b.account = t.account AND b.reference = t.reference AND b.is_here = t.is_here AND b.f = t.f
            AND b.place = t.place
    WHERE (t.times <= b.times AND t.shown_here <= b.here) OR t.shown <= b.in_reach;
DELETE FROM ours_left WHERE n IN (SELECT n FROM agreed);
DELETE FROM theirs_left WHERE (account, id) IN (SELECT (account, id) FROM agreed);
DROP TABLE agreed;

-- @several
-- One by one, those of most money first: `ours_left` with `theirs_left`, of which unpaid orders stand for paid ones only
-- where there are no others. The places of the time that was asked for come first, then those of other times; what its own
-- time has no place for takes a free one of the other. Paid orders that are left are doubles of the last.
INSERT INTO found
    WITH
        ours AS (
            SELECT *, is_young(created) AS is_young,
                row_number() OVER (
                    PARTITION BY account, reference
                    ORDER BY
                        in_question(created) DESC, is_young DESC, is_paid(paid, state_of(status)) DESC NULLS LAST,
                        paid DESC NULLS LAST, refunded DESC NULLS LAST, currency, total, state_of(status), n
                ) AS place
            FROM ours_left WHERE h % getvariable('steps') = getvariable('step')
        ),
        ranked AS (
            SELECT *, is_paid(paid, state) AS got_paid, in_question(created) AS is_here,
                row_number() OVER (
                    PARTITION BY account, reference, is_here
                    ORDER BY
                        is_paid(paid, state) DESC, paid DESC, refunded DESC, currency, total, state, created DESC, id
                ) AS place,
                count_if(is_here) OVER (PARTITION BY account, reference) AS shown_here,
                count_if(is_here AND got_paid) OVER (PARTITION BY account, reference) AS paid_here,
                count_if(NOT is_here AND got_paid) OVER (PARTITION BY account, reference) AS paid_elsewhere
            FROM theirs_left WHERE h % getvariable('steps') = getvariable('step')
        ),
        known AS (
            SELECT
                account, reference, count_if(in_question(created)) AS here,
                coalesce(nullif(count_if(in_question(created) OR is_young), 0), count(*)) AS times
            FROM ours GROUP BY ALL
        ),
        placed AS (
            SELECT r.* REPLACE (CASE
                    WHEN k.times IS NULL THEN if(is_here, place, shown_here + place)
                    WHEN is_here AND place <= here THEN place
                    WHEN is_here AND got_paid AND paid_elsewhere + place <= k.times THEN paid_elsewhere + place
                    WHEN NOT (is_here OR got_paid) AND paid_here > here THEN NULL
                    WHEN NOT is_here AND here + place <= k.times THEN here + place
                    WHEN NOT is_here AND shown_here + place <= k.times THEN shown_here + here + place - k.times
                    WHEN got_paid AND (is_here OR shown_here < here) THEN if(here > 0, here, k.times)
                END AS place), k.times IS NOT NULL AS is_known
            FROM ranked AS r LEFT JOIN known AS k ON r.account = k.account AND r.reference = k.reference
        ),
        summed AS (
            SELECT
                account, reference, place, string_agg(id, ' ' ORDER BY paid DESC, id) AS ids,
                first(currency ORDER BY paid DESC, id) AS currency, sum(total)::DECIMAL(38, 18) AS total,
                sum(paid)::DECIMAL(38, 18) AS paid, sum(refunded)::DECIMAL(38, 18) AS refunded,
                first(state ORDER BY paid DESC, id) AS state, min(created) AS created, max(read_at) AS read_at,
                count(*) FILTER (got_paid) > 1 AND bool_or(is_known) AS is_double, bool_or(is_here) AS is_here
            FROM placed WHERE place IS NOT NULL GROUP BY ALL
        )
    SELECT
        CASE
            WHEN b.n IS NULL THEN if(t.created >= getvariable('settled'), 'too_recent', 'extra')
            WHEN t.ids IS NULL OR NOT (in_question(b.created) OR getvariable('is_looked_up')) THEN 'absent'
            WHEN t.is_double THEN 'double'
            ELSE judged(
                b.currency, b.paid, b.refunded, b.total, b.status, t.currency, t.paid, t.refunded, t.total, t.state
            )
        END AS outcome,
        b.n, coalesce(t.account, b.account), coalesce(t.reference, b.reference), t.ids, t.currency, t.total, t.paid,
        t.refunded, t.state, t.created, t.read_at
    FROM ours AS b FULL JOIN summed AS t
        ON b.account = t.account AND b.reference = t.reference AND b.place = t.place
    WHERE outcome <> 'match' AND (b.n IS NULL OR in_question(b.created) OR t.is_here);

-- @look_up
-- Those that the walk has not found, or that were made at another time. Of their references, all is compared again.
CREATE TABLE absent AS
    SELECT
        b.* REPLACE (if(in_question(b.created), b.order_id, NULL) AS order_id),
        EXISTS (FROM changed_rows AS c WHERE c.account = b.account AND c.reference = b.reference) AS has_changed
    FROM our_candidates AS b JOIN found USING (n) WHERE found.outcome = 'absent';
DELETE FROM found WHERE (account, reference) IN (SELECT (account, reference) FROM absent);
DROP TABLE ours_left;
DROP TABLE theirs_left;

-- @absent
SELECT n, account, reference, coalesce(order_id, ''), has_changed FROM absent
ORDER BY row_number() OVER (PARTITION BY account ORDER BY n), account;

-- @looked_up
-- What a look-up by reference has shown stands for what the walk has not; but for what it has.
CREATE TABLE theirs_left AS
    SELECT * EXCLUDE (order_status, status), state_in(order_status, status) AS state, hash(account, reference) AS h
    FROM theirs SEMI JOIN absent USING (account, reference);
INSERT INTO theirs_left BY NAME
    WITH walked_too AS (SELECT DISTINCT account, id FROM theirs SEMI JOIN looked_up USING (account, id))
    SELECT DISTINCT ON (account, id)
        account, id, reference, currency, total, paid, refunded, state_of(state) AS state, created, read_at,
        hash(account, reference) AS h
    FROM looked_up ANTI JOIN walked_too USING (account, id)
    WHERE id IS NOT NULL AND NOT by_id;
CREATE TABLE ours_left AS FROM our_candidates SEMI JOIN absent USING (account, reference);

-- @decide
-- After `several`, what is absent now has not been found at all.
CREATE TABLE nowhere AS SELECT n FROM found WHERE outcome = 'absent';
DELETE FROM found WHERE outcome = 'absent';
INSERT INTO found
    SELECT
        CASE
            WHEN o.id IS NOT NULL THEN judged(
                b.currency, b.paid, b.refunded, b.total, b.status, o.currency, o.paid, o.refunded, o.total, state_of(o.state)
            )
            WHEN l.is_doubtful THEN 'not_whole'
            WHEN b.created < getvariable('oldest') AND o.n IS NULL THEN 'too_old'
            WHEN EXISTS (
                SELECT 1 FROM doubtful AS d
                WHERE d.account = b.account AND b.created >= d.first AND b.created < d.last
            ) THEN 'not_whole'
            WHEN b.created >= getvariable('settled') THEN 'too_recent'
            WHEN o.n IS NOT NULL THEN 'missing'
            WHEN b.paid = 0 AND NOT coalesce(state_of(b.status) IN ('paid', 'refunded'), false) THEN 'match'
            WHEN b.paid IS NULL AND state_of(b.status) IN ('created', 'open', 'expired', 'canceled') THEN 'match'
            ELSE 'not_paid_or_missing'
        END AS outcome,
        b.n, b.account, b.reference, o.id, o.currency, o.total, o.paid, o.refunded, state_of(o.state), o.created, o.read_at
    FROM our_candidates AS b JOIN nowhere USING (n)
        LEFT JOIN (SELECT n, bool_or(is_doubtful) AS is_doubtful FROM looked_up GROUP BY n) AS l USING (n)
        LEFT JOIN (SELECT * FROM looked_up WHERE by_id) AS o USING (n)
    WHERE outcome <> 'match';

-- @differences
CREATE VIEW differences AS
    SELECT
        CASE
            WHEN f.outcome NOT IN ('too_recent', 'extra') AND EXISTS (
                SELECT 1 FROM open_writes AS w
                WHERE w.account = b.account AND (w.reference = b.reference OR w.order_id = b.order_id)
            ) THEN 'unknown'
            WHEN f.outcome IN ('too_recent', 'extra') AND EXISTS (
                SELECT 1 FROM open_writes AS w WHERE w.account = f.account AND w.reference = f.reference
            ) THEN 'unknown'
            ELSE f.outcome
        END AS outcome,
        coalesce(b.account, f.account) AS account, coalesce(b.reference, f.reference) AS reference, b.order_id,
        f.ids AS merchant_order_ids, b.currency AS book_currency, f.currency, b.total AS book_total, f.total,
        b.paid AS book_paid, f.paid, b.refunded AS book_refunded, f.refunded, b.status AS book_status, f.state AS status,
        b.created AS book_created, f.created, f.read_at, b.n
    FROM found AS f LEFT JOIN our_candidates AS b USING (n);

-- @counts
SELECT outcome, count(*) FROM differences GROUP BY outcome
UNION ALL
SELECT 'match', (SELECT count(*) FROM book WHERE in_question(created))
    - (SELECT count(*) FROM differences WHERE n IS NOT NULL AND in_question(book_created));
