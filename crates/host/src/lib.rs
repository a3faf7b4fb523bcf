//! What the agent asks of Linux
