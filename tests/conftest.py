import pytest
import torch
from support.bench import finished, results_of, tiny  # noqa: F401  # fixtures of two rooms
from support.browser import start_browser

# One thread, whatever the machine: neither bits nor times depend on what else it does.
torch.set_num_threads(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Neighbouring tests go to one worker, which makes what they share once; who is done first
    takes from others.
    """
    if config.getoption("dist") != "load":
        return None  # whoever runs the tests asked for another way
    from xdist.scheduler import WorkStealingScheduling  # noqa: PLC0415

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    driver = start_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()
