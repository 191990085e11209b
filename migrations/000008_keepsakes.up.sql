-- A keepsake is a picture under a name: a memory, its image, and this row.
CREATE TABLE keepsakes (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    image_id uuid NOT NULL UNIQUE REFERENCES memories_image (id) ON DELETE CASCADE,
    namespace text NOT NULL,
    about text NOT NULL,
    about_key text NOT NULL,
    note text NOT NULL DEFAULT '',
    kind text NOT NULL,
    source text NOT NULL,
    sha256 varchar(64) NOT NULL,
    words text NOT NULL,
    pinned boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    recalled_at timestamptz,
    trashed_at timestamptz,
    CONSTRAINT keepsakes_identity UNIQUE (namespace, about_key, sha256)
);
CREATE INDEX keepsakes_newest ON keepsakes (namespace, created_at DESC, id)
    WHERE trashed_at IS NULL;
CREATE INDEX keepsakes_trash ON keepsakes (namespace, trashed_at) WHERE trashed_at IS NOT NULL;

-- What an app that shows conversations has to be told; the newest of each are kept for replay.
CREATE TABLE vision_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text NOT NULL,
    conversation text NOT NULL,
    event jsonb NOT NULL,
    emit_key uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX vision_events_replay ON vision_events (namespace, conversation, id);

-- How far apart a sentence and a picture are that have nothing to do with each other, measured for
-- the model: what is farther than the floor is no match.
ALTER TABLE vision_models ADD COLUMN look_floor float8;
