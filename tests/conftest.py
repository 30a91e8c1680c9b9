import pytest
import torch
from support.browser import start_browser

# One thread, whatever the machine: neither bits nor times depend on what else it does.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()
