CREATE TABLE vision_models (
    key text PRIMARY KEY,
    name text NOT NULL,
    source text NOT NULL,
    framing text NOT NULL,
    native_dim int NOT NULL,
    input_size int NOT NULL,
    active boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX vision_models_one_active ON vision_models (active) WHERE active;

CREATE TABLE vision_workers (
    id uuid PRIMARY KEY,
    hostname text NOT NULL,
    pid int NOT NULL,
    model_key text,
    queues text[] NOT NULL,
    device text,
    state text NOT NULL,
    detail text,
    started_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now()
);
